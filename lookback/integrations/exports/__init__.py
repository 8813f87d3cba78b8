"""Export runs as other tools read them: `lookback export`. Here are its formats, data alone."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Format:
    """A format that a run can be written in.

    Attributes:
        name: what users call it.
        about: what it is.
        module, function: what writes it.
        takes: those of `OPTIONS` that it has.
        defaults: of these; False otherwise.
        suffixes: how the file's name may end; empty if it may end as it likes.
    """

    name: str
    about: str
    module: str
    function: str
    takes: tuple[str, ...]
    defaults: dict[str, bool] = field(default_factory=dict)
    suffixes: tuple[str, ...] = ()


OPTIONS = ("flat", "signals", "images")
"""What some formats take and others do not."""

FORMATS = {
    form.name: form
    for form in (
        Format(
            "jsonl",
            "a line of JSON per item with its candidates, or per candidate (--flat)",
            "lookback.integrations.exports.base",
            "write_jsonl",
            ("flat", "signals"),
        ),
        Format(
            "inspect",
            "a log of Inspect AI (.eval or .json) with the picks and how good they are",
            "lookback.integrations.exports.inspect_ai",
            "write_log",
            ("signals", "images"),
            {"images": True},
            (".eval", ".json"),
        ),
        Format(
            "hf-dataset",
            "a folder for datasets.load_dataset, with a card",
            "lookback.integrations.exports.hf_datasets",
            "write_dataset",
            ("flat", "signals", "images"),
        ),
    )
}
"""The formats, in the order in which lists show them."""


def get_format(name: str) -> Format:
    """Return the format of a name; raise ValueError if there is none."""
    if name not in FORMATS:
        raise ValueError(f"no export format named {name!r}; there are: {', '.join(FORMATS)}")
    return FORMATS[name]
