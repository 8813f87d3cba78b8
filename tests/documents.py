"""The documents as tests read them: README, docs and their like, with their snippets and links."""

import re
import shlex
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    *sorted((ROOT / "docs").glob("*.md")),
]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.py"))
FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```", re.DOTALL | re.MULTILINE)
SEPARATORS = {";", "&&", "||", "|", "do", "then", "done", "&"}


def read(path):
    """A page's text; of a notebook, that of its Markdown cells and its calls of the shell."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        return text
    cells = re.findall(r"^# %%([^\n]*)\n(.*?)(?=^# %%|\Z)", text, re.DOTALL | re.MULTILINE)
    spoken = [(kind, re.sub(r"^# ?", "", body, flags=re.MULTILINE)) for kind, body in cells if kind]
    return "\n".join(f"```bash\n{body}\n```" if "bash" in kind else body for kind, body in spoken)


def blocks(text, *kinds):
    """The fenced blocks of some kinds, in their order."""
    return [body for kind, body in FENCE.findall(text) if kind in kinds]


def shell_words(text):
    """The commands of a page's shell blocks, each as a list of words."""
    found = []
    for body in blocks(text, "bash"):
        for line in body.replace("\\\n", " ").splitlines():
            line = re.sub(r"\s2?>\s*[\w./-]+", "", line)  # where its output goes
            lexer = shlex.shlex(line, posix=True, punctuation_chars=";&|")
            lexer.whitespace_split = True
            words = [""]
            for word in [*lexer, ";"]:
                if word in SEPARATORS or set(word) <= set(";&|"):
                    found.append(words[1:])
                    words = [""]
                else:
                    words.append(word)
    return [words for words in found if words]


def inline_words(text):
    """The code inside sentences, each as a list of words."""
    prose = FENCE.sub("", text)
    return [code.split() for code in re.findall(r"`([^`\n]+)`", prose)]


def table(text, before):
    """(row, column) -> text, of the first table after some words."""
    found = re.search(r"(?:^\|.*\n)+", text[text.index(before) :], re.MULTILINE)[0]
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in found.splitlines()]
    head, _, *rows = lines
    return {
        (row[0], column): re.sub(r"</?u>|\*\*", "", cell)
        for row in rows
        for column, cell in zip(head, row, strict=True)
    }


def links(text):
    """(target, anchor) of each link to a file."""
    plain = FENCE.sub("", text)
    return re.findall(r"\]\((?![a-z]+:)([^)#\s]*)(?:#([^)\s]*))?\)", plain)


def anchors(path):
    """What a link can name in a page: its headings, as GitHub and the site spell them."""
    headings = re.findall(r"^#+ (.*)$", FENCE.sub("", read(path)), re.MULTILINE)
    return {
        re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-") for heading in headings
    }
