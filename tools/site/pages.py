"""The pages of the site, gathered in build/docs: docs/, and what lies outside of it.

On GitHub a link names a file of the repository (`../CONTRIBUTING.md`, `docs/runs.md`). On the site
that file is a page, perhaps elsewhere, and its link is written anew. A link to a file that is no
page stays as it is, and the strict build fails on it. Gathered pages are plain Markdown: what
builds the site needs no hooks.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[2]
GATHERED = ROOT / "build" / "docs"
EXECUTED = ROOT / "build" / "notebooks"
"""Where `make notebooks` leaves each notebook as a page, with what it showed."""

OUTSIDE = {
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    **{
        path.relative_to(ROOT).as_posix(): f"notebooks/{path.stem}.md"
        for path in sorted((ROOT / "notebooks").glob("*.py"))
    },
}
"""Files of the repository that are pages of the site, and where."""

LINK = re.compile(r"(\]\()([^)#\s:]+)(#[^)\s]*)?(?=\))")
NAMED = re.compile(r"^```(\w+) ([\w.-]+)$", re.MULTILINE)
"""A fence with the name of the file that it shows."""


def gather() -> None:
    """Make build/docs anew."""
    shutil.rmtree(GATHERED, ignore_errors=True)
    shutil.copytree(ROOT / "docs", GATHERED)
    for origin, page in OUTSIDE.items():
        notebook = EXECUTED / f"{Path(origin).stem}.md"
        _copy(notebook if origin.endswith(".py") else ROOT / origin, page)
    for picture in sorted(EXECUTED.glob("*_files/*")):
        _copy(picture, f"notebooks/{picture.relative_to(EXECUTED)}")
    for path in sorted(GATHERED.rglob("*.md")):
        page = path.relative_to(GATHERED).as_posix()
        text = relink(path.read_text(encoding="utf-8"), page)
        path.write_text(NAMED.sub(r'```\1 title="\2"', text), encoding="utf-8")


def _copy(source: Path, page: str) -> None:
    (GATHERED / page).parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(source, GATHERED / page)


def relink(text: str, page: str) -> str:
    """The text of a page with each link to a file that is a page leading there."""
    origins = {site: origin for origin, site in OUTSIDE.items()}
    folder = PurePosixPath(origins.get(page, f"docs/{page}")).parent

    def lead(found: re.Match[str]) -> str:
        target = os.path.normpath(folder / found[2])
        site = OUTSIDE.get(target) or _below_docs(target)
        if site is None:
            return found[0]
        return found[1] + os.path.relpath(site, PurePosixPath(page).parent) + (found[3] or "")

    return LINK.sub(lead, text)


def _below_docs(target: str) -> str | None:
    path = PurePosixPath(target)
    return path.relative_to("docs").as_posix() if path.is_relative_to("docs") else None


if __name__ == "__main__":
    gather()
