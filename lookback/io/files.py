"""Files that anybody may have made: regular ones only, of limited size, in the folder they name.

A pipe or a device never ends, or waits for ever; a small archive can hold terabytes; a name in a
data file can point anywhere. Each is refused here, with a line that says so.
"""

from __future__ import annotations

import gzip
import lzma
import os
import stat
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterable
from pathlib import PurePosixPath, PureWindowsPath
from typing import Protocol

from lookback.io.limits import DATA_MIB, MIB, PACKED_RATIO, Limit
from lookback.io.storage import AnyPath, RemotePath, is_remote, readable, size_of

OUTSIDE_VARIABLE = "LOOKBACK_ALLOW_OUTSIDE"
"""Set to 1, names in data files may lead out of their folder."""
_KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
_DAMAGE = (OSError, EOFError, zlib.error, lzma.LZMAError, struct.error, zipfile.BadZipFile)
_CHUNK = MIB
_RATIO_FROM = 16 * MIB  # a few repeated lines may pack better than any limit


def check_file(path: str | os.PathLike[str] | RemotePath, limit: Limit) -> None:
    """Raise an error unless there is a regular file within a limit of size; it is not opened."""
    if isinstance(path, RemotePath):
        limit.check(path.size(), repr(str(path)))
        return
    try:
        about = os.stat(path)
    except ValueError as error:  # a null byte in it
        raise ValueError(f"{os.fspath(path)!r:.80} is no path: {error}") from None
    kind = stat.S_IFMT(about.st_mode)
    if kind != stat.S_IFREG:
        raise ValueError(
            f"{os.fspath(path)!r} is {_KINDS.get(kind, 'no file')}: a regular file is needed"
        )
    limit.check(about.st_size, repr(os.fspath(path)))


def read_bytes(path: str | os.PathLike[str] | RemotePath, limit: Limit = DATA_MIB) -> bytes:
    """Return a whole file, if it is a regular one within a limit of size.

    Raises:
        FileNotFoundError: there is none.
        ValueError: it is something else than a file, or too large.
    """
    check_file(path, limit)
    if isinstance(path, RemotePath):
        return path.read_bytes()
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size  # memory is taken for as much as is asked for
        data = file.read(size + 1)
        if len(data) > size:  # it has grown
            data += file.read(limit.most + 1)
    limit.check(len(data), repr(os.fspath(path)))
    return data


class Stream(Protocol):
    """What bytes can be read from."""

    def read(self, size: int, /) -> bytes: ...


def read_stream(stream: Stream, limit: Limit, name: str) -> bytes:
    """Return all of a stream, which need not have an end; raise LimitError if it is too large."""
    return read_chunks(iter(lambda: stream.read(_CHUNK), b""), lambda size: limit.check(size, name))


def read_chunks(chunks: Iterable[bytes], check: Callable[[int], None]) -> bytes:
    """Return chunks joined; `check` is called with their bytes so far, and raises if too many."""
    kept, total = [], 0
    for chunk in chunks:
        kept.append(chunk)
        total += len(chunk)
        check(total)
    return b"".join(kept)


def read_unpacked(path: AnyPath, member: str) -> bytes:
    """Return a file, unpacked if its name ends in .gz; of a .zip the only member that fits.

    Args:
        path: the file.
        member: how the name of the member ends, e.g. ".json".

    Raises:
        ValueError: it is broken, encrypted, too large, or has not exactly one such member.
    """
    kind = path.suffix.lower()
    if kind not in (".gz", ".zip"):
        return read_bytes(path)
    check_file(path, DATA_MIB)
    try:
        if kind == ".gz":
            with gzip.open(readable(path)) as file:
                return _inflate(file, size_of(path), repr(str(path)))
        with zipfile.ZipFile(readable(path)) as archive:
            members = [entry for entry in archive.infolist() if entry.filename.endswith(member)]
            if len(members) != 1:
                raise ValueError(f"{len(members)} {member} files in the archive: one is needed")
            with archive.open(members[0]) as file:
                return _inflate(file, members[0].compress_size, repr(str(path)))
    except _DAMAGE as error:
        raise ValueError(f"the archive is broken: {error}") from error
    except (RuntimeError, NotImplementedError) as error:  # a password, an unknown method
        raise ValueError(f"the archive cannot be unpacked: {error}") from error


def _inflate(file: Stream, packed: int, name: str) -> bytes:
    """Return all of a packed stream, counted as it grows: what an archive says may be false."""
    chunks = iter(lambda: file.read(_CHUNK), b"")
    return read_chunks(chunks, lambda size: check_unpacked(size, packed, name))


def check_unpacked(total: int, packed: int, name: str) -> None:
    """Raise LimitError if a file of `packed` bytes unpacks to too many, or too many times more."""
    DATA_MIB.check(total, f"{name}, unpacked,")
    if total > max(_RATIO_FROM, PACKED_RATIO.most * packed):
        raise PACKED_RATIO.error(f"{name} has {packed:,} bytes and unpacks to over {total:,}")


def outside_allowed() -> bool:
    return os.environ.get(OUTSIDE_VARIABLE, "") not in ("", "0")


def check_inside(folder: AnyPath, name: str) -> None:
    """Raise ValueError if a name from a data file leads out of the data's folder.

    The name alone may lead out (`..`, an absolute path), and so may a symbolic link on the way.
    """
    if "\0" in name:
        raise ValueError(f"{name!r:.80} is no path: it has a null byte")
    if outside_allowed():
        return
    posix, windows = PurePosixPath(name), PureWindowsPath(name)
    if posix.is_absolute() or windows.drive or windows.root:
        reason = "an absolute path"
    elif ".." in windows.parts:  # which knows both slashes
        reason = "a path with '..'"
    elif name.startswith("~"):
        reason = "a path from a home folder"
    elif is_remote(name):
        reason = "an address elsewhere"
    elif isinstance(folder, RemotePath):  # which has no symbolic links
        return
    elif not _within(os.path.realpath(folder / name), os.path.realpath(folder)):
        reason = "a symbolic link to elsewhere"
    else:
        return
    raise ValueError(
        f"{name!r:.80} is {reason}: files that data name stay in the folder of the data, unless "
        f"--allow-outside or {OUTSIDE_VARIABLE}=1 lets them out"
    )


def _within(path: str, folder: str) -> bool:
    return os.path.commonpath([path, folder]) == folder
