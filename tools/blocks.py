"""Parts of a document that a command writes, between <!-- NAME --> and <!-- /NAME -->."""

import re
from pathlib import Path


def put(doc: Path, name: str, words: str) -> None:
    """Put new words in the place of the old ones.

    Raises:
        ValueError: the document has no such part.
    """
    text = doc.read_text(encoding="utf-8")
    new, count = re.subn(
        rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)",
        lambda match: f"{match[1]}{words}{match[2]}",
        text,
        flags=re.DOTALL,
    )
    if not count:
        raise ValueError(f"{doc} has no block between <!-- {name} --> and <!-- /{name} -->")
    doc.write_text(new, encoding="utf-8")
