"""The page's fixed parts as HTML: the runs, and a section a study."""

from __future__ import annotations

import json
import mimetypes
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from lookback.report.data import labels
from lookback.report.table import prose, table_html
from lookback.runs import Run
from lookback.studies import Result, Table, get_study, title
from lookback.studies.pages import escaped, uri
from lookback.studies.shared.plots import figure_bytes
from lookback.studies.shared.tables import files_of

SVG_MOST = 300_000
"""Bytes above which a figure (a scatter of many points) goes in as PNG."""
DOWNLOAD_MOST = 500_000
"""Bytes above which a file is only named: the command that made the page wrote it beside it."""
PIXELS_AN_INCH = 108


def heading(name: str) -> str:
    """A study's name as a heading."""
    return {"pos": "Parts of speech"}.get(name, name.replace("-", " ").capitalize())


def nav_html(results: Mapping[str, Result | str]) -> str:
    """Links to all sections; studies that could not be done are dimmed."""
    links = ['<li><a href="#runs">Runs</a></li>']
    for name, result in results.items():
        done = "" if isinstance(result, Result) else ' class="undone"'
        text = escaped(heading(name))
        links.append(f'<li{done}><a href="#study-{escaped(name)}">{text}</a></li>')
    links.append('<li><a href="#items">Items</a></li>')
    return "\n".join(links)


def runs_html(runs: Sequence[Run]) -> str:
    """What was run, as a table; all settings and versions to unfold."""
    rows = [_about(run) for run in runs]
    columns = [("", name) for name in rows[0]]
    table = table_html(Table(columns, [list(row.values()) for row in rows], ""), "Runs")
    details = "\n".join(
        _settings(run, label) for run, label in zip(runs, labels(runs), strict=True)
    )
    return (
        f"{table}\n<details><summary>All settings and versions</summary>"
        f'<div class="settings">{details}</div></details>'
    )


def _about(run: Run) -> dict[str, str]:
    done, total = int(run.manifest.done), int(run.manifest.items)
    return {
        "Model": run.model,
        "Benchmark": title(run),
        "Split": str(run.settings["split"]),
        "Items": str(total) if done == total else f"{done} of {total}",
        "N": str(run.n),
        "Seed": "-" if run.seed is None else str(run.seed),
        "Image": run.image,
        "Failed": str(run.manifest.failed),
        "α": f"{run.defaults['alpha']:g}",
        "λ": f"{run.defaults['lam']:g}",
        "Commit": _short(run.manifest.commit),
    }


def _short(commit: str | None) -> str:
    """Enough of a commit to know it by; "+" says that files were changed."""
    return "-" if commit is None else commit[:8] + "+" * commit.endswith("+")


def _settings(run: Run, label: str) -> str:
    facts = {"run": run.id, "created": run.manifest.created, "commit": run.manifest.commit}
    pairs = facts | run.settings | {"versions": dict(run.manifest.versions)}
    lines = "".join(
        f"<dt>{escaped(key)}</dt><dd>{escaped(_plain(value))}</dd>"
        for key, value in pairs.items()
        if value is not None
    )
    return f"<div><h3>{escaped(label)}</h3><dl>{lines}</dl></div>"


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {_plain(inner)}" for key, inner in value.items())
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def study_html(name: str, result: Result | str) -> str:
    """The section of one study: figure, tables, notes, files; or why it could not be done."""
    about = get_study(name)
    parts = [
        f"<h2>{escaped(heading(name))}</h2>",
        f'<p class="tags"><code>lookback study {escaped(name)}</code>',
        *(f"<code>{escaped(label)}</code>" for label in about.paper.replace(",", " ").split()),
        f'</p>\n<p class="lead">{prose(about.about)}</p>',
    ]
    if isinstance(result, str):
        parts.append(f'<p class="reason"><strong>Not done:</strong> {prose(result)}</p>')
    else:
        if result.figure is not None:
            parts.append(_figure(result.figure, f"{heading(name)}. {about.about}"))
        parts += [table_html(table) for table in result.tables]
        if result.notes:
            notes = "".join(f"<li>{prose(note)}</li>" for note in result.notes)
            parts.append(f'<ul class="notes">{notes}</ul>')
        parts.append(_downloads(name, result))
    body = "\n".join(parts)
    return f'<section id="study-{escaped(name)}" class="study">\n{body}\n</section>'


def _figure(figure: Any, alt: str) -> str:
    """As an image, so that the ids inside one SVG cannot meet those of another."""
    form, kind = "svg", "image/svg+xml"
    image = figure_bytes(figure, form)
    if len(image) > SVG_MOST:
        kind, image = "image/png", figure_bytes(figure, "png")
    width, height = (round(PIXELS_AN_INCH * inches) for inches in figure.get_size_inches())
    return (
        f'<figure class="scroll" tabindex="0"><img alt="{escaped(alt)}" width="{width}" '
        f'height="{height}" src="{uri(kind, image)}"></figure>'
    )


def _downloads(name: str, result: Result) -> str:
    """Links to the rows as CSV, the tables as LaTeX, and what else the study gave."""
    links = []
    for file, data in files_of(name, replace(result, figure=None)).items():
        size = f"{max(1, round(len(data) / 1000)):,} kB"
        if file == f"{name}.md":  # it says what the page says
            continue
        if len(data) > DOWNLOAD_MOST:
            links.append(f"{escaped(file)} ({size}, beside this page)")
            continue
        kind = mimetypes.guess_type(file)[0] or "application/octet-stream"
        links.append(
            f'<a download="{escaped(file)}" href="{uri(kind, data)}">{escaped(file)}</a> ({size})'
        )
    return f'<p class="downloads">{" ".join(f"<span>{link}</span>" for link in links)}</p>'
