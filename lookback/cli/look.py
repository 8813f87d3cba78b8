"""The command `look`: where a response looked, in the terminal, as a page or as a strip."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lookback.cli.app import (
    OUTPUT,
    Count,
    Device,
    DeviceMap,
    Dtype,
    EngineName,
    EngineSet,
    MaxNewTokens,
    Model,
    More,
    Revision,
    Seed,
    Source,
    Temperature,
    TopP,
    TrustRemoteCode,
    app,
    load_settings,
)
from lookback.cli.questions import check_question, read_conversation
from lookback.cli.start import Start
from lookback.cli.stdin import check_stdin, is_stdin, read_stdin_text
from lookback.cli.steering import count_drawn
from lookback.cli.terminal import LONGEST, console, print_json, progress
from lookback.errors import one_line
from lookback.io.json_values import check_text

if TYPE_CHECKING:
    from lookback.conversations import Conversation
    from lookback.engines import Engine
    from lookback.signals import Candidate

SCORER = "lookback"
"""What chooses the answer that is looked at, if none is given."""
RELATIVE = ("tokens", "prompt")
LOOKED = "Where it looked"


@app.command()
def look(
    image: Annotated[
        str, typer.Argument(help="An image or a video: a file, a URL, or - for stdin.")
    ],
    question: Annotated[str, typer.Argument(help="What was asked about it.")],
    response: Annotated[
        str | None,
        typer.Argument(
            help="The answer, or - for stdin; by default the best of N that are drawn.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="Write a page (.html) or a strip of small pictures (.png).",
            show_default=False,
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    layers: Annotated[
        str | None,
        typer.Option(
            help="Attention layers to read, from 0: 4-8 reads 4, 5, 6 and 7; by default all.",
            show_default=False,
            rich_help_panel=LOOKED,
        ),
    ] = None,
    relative: Annotated[
        str | None,
        typer.Option(
            metavar="tokens|prompt",
            help="Show where a word looked more than usual: than the answer's tokens on average, "
            "or than the same word after another question.",
            show_default=False,
            rich_help_panel=LOOKED,
        ),
    ] = None,
    against: Annotated[
        str,
        typer.Option(help="With --relative prompt: the other question.", rich_help_panel=LOOKED),
    ] = "Describe the image.",
    more_images: More = None,
    source: Source = None,
    n: Count = 25,
    temperature: Temperature = 1.2,
    top_p: TopP = 0.9,
    max_new_tokens: MaxNewTokens = 256,
    seed: Seed = 42,
    model: Model = None,
    engine: EngineName = None,
    device: Device = None,
    dtype: Dtype = None,
    revision: Revision = None,
    device_map: DeviceMap = None,
    trust_remote_code: TrustRemoteCode = False,
    engine_set: EngineSet = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print all weights as JSON.", rich_help_panel=OUTPUT)
    ] = False,
) -> None:
    """Show where in the image each word of an answer looked.

    Without an answer, N are drawn and the best by LookBack is taken.

    Without --model the embedded model looks, which is small and knows drawn scenes only.
    """
    from lookback.engines import require
    from lookback.engines.common.options import check_sampling
    from lookback.pages.look import check_output, save

    check_stdin({"IMAGE": image, "--image": more_images, "RESPONSE": response})
    check_sampling(n, temperature, top_p, None, max_new_tokens, seed)
    n = count_drawn(n, temperature) if response is None else n
    check_question(question)
    chosen, kind = parse_layers(layers), check_relative(relative)
    given = _read(response)
    if out is not None:
        check_output(out)
    conversation = read_conversation([image, *(more_images or [])], question)
    conversation.source(source)
    options = load_settings(
        engine, device, dtype, revision, device_map, trust_remote_code, engine_set
    )
    lb = Start(model, options, SCORER)(conversation)
    require(lb, ["look"] if given is not None else ["look", "sample"], "lookback look")
    drawing: dict[str, Any] = {"n": n, "temperature": temperature, "top_p": top_p, "seed": seed}
    drawing |= {"max_new_tokens": max_new_tokens, "source": source}
    said = _draw(lb, conversation, drawing) if given is None else given
    with progress("looking") as bar:
        found = lb.look(
            messages=conversation.messages(),
            response=said,
            source=source,
            layers=chosen,
            relative_to=against if kind == "prompt" else None,
            progress=bar,
        )
    from lookback.cli.look_screen import look_dict, show_look

    if as_json:
        best_of = {"best_of": n, "scorer": SCORER} if given is None else {}
        print_json({"question": question, "model": lb.name} | best_of | look_dict(found, kind))
    else:
        title = "the response" if given is not None else f"the best of {n} by {SCORER}"
        show_look(console(), found, kind, title)
    if out is not None:
        with console(stderr=True).status(f"writing {out}"):
            save(found, out, question, kind)
        print(one_line(out, LONGEST), file=sys.stderr)


def parse_layers(given: str | None) -> tuple[int, int] | None:
    """`--layers 4-8` or `--layers 5`: the first, and the one behind the last.

    Raises:
        ValueError: it is neither, or there is none between them.
    """
    if given is None:
        return None
    match = re.fullmatch(r"(\d{1,6})(?:-(\d{1,6}))?", given.strip())
    first = int(match[1]) if match else 0
    stop = int(match[2]) if match and match[2] else first + 1
    if match is None or stop <= first:
        raise ValueError(
            f"--layers {given:.60}: write the first and the one behind the last, e.g. 4-8 for "
            "layers 4, 5, 6 and 7, or one layer, e.g. 5"
        )
    return first, stop


def check_relative(given: str | None) -> Any:
    """`--relative` as `Look.heatmap` takes it.

    Raises:
        ValueError: it is another word.
    """
    if given is None:
        return False
    if given not in RELATIVE:
        raise ValueError(f"--relative {given:.60}: must be one of {', '.join(RELATIVE)}")
    return given


def _read(response: str | None) -> str | None:
    """The given answer, from stdin if it is there.

    Raises:
        ValueError: it is empty, or too long.
    """
    from lookback.io.limits import DATA_MIB, TEXT_CHARACTERS

    if response is None:
        return None
    text = read_stdin_text(DATA_MIB).strip() if is_stdin(response) else response
    if not check_text(text, "the response").strip():
        raise ValueError("the response is empty: there is no word that could look anywhere")
    TEXT_CHARACTERS.check(len(text), "the response")
    return text


def _draw(lb: Engine, conversation: Conversation, drawing: dict[str, Any]) -> Candidate:
    """The best answer of those that are drawn.

    Raises:
        ValueError: all of them are empty.
    """
    with progress(f"drawing {drawing['n']} answers") as bar:
        cands = lb.sample(messages=conversation.messages(), progress=bar, **drawing)
    best = cands.best(SCORER)
    if not len(best.signals):
        raise ValueError("every answer is empty: give one as RESPONSE")
    return best
