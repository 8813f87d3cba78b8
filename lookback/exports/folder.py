"""A folder that is there whole or not at all."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lookback.runs.layout import TEMPORARY
from lookback.storage import AnyPath


@contextmanager
def making_folder(path: AnyPath) -> Iterator[Path]:
    """`with making_folder(path) as temporary`: fill it; on success it takes the path's place.

    A kill leaves a folder beside it whose name begins with a dot and says what it is.

    Raises:
        ValueError: the path is in an object store, where no folder can be renamed.
        OSError: it cannot be written, or something has come to be there meanwhile.
    """
    if not isinstance(path, Path):
        raise ValueError(
            f"--out {str(path)!r}: a folder of several files cannot be made at once in an object "
            "store: write it here, then copy it there"
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.parent / f"{TEMPORARY}{path.name}.{os.getpid()}"
    temporary.mkdir()
    try:
        yield temporary
        for file in sorted(temporary.rglob("*")):
            if file.is_file():
                with open(file, "rb") as written:
                    os.fsync(written.fileno())
        os.rename(temporary, path)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
