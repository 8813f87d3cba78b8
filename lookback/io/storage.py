"""Where files are: on this machine, or in an object store (s3://, gs://, ...) by way of fsspec.

`to_path("s3://bucket/run")` is a `RemotePath`, which has those methods of `pathlib.Path` that are
used of both; any other text is a `Path`. Nothing else knows of fsspec, and nothing imports it for a
local path.

An object store has no folders to be made, no renaming and no locks: an object is written whole or
not at all, one that must not be there yet is written on that condition (`create`), and a listing
is asked for anew each time, as others may write.
"""

from __future__ import annotations

import io
import os
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

from lookback.errors import one_line

LOCAL = ("file", "local")
STORES = ("s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "oss", "oci", "memory")
"""Where an object is written whole or not at all; fsspec knows others, where a half can be seen."""
AT_ONCE = 16
"""Objects that are asked for at the same time, where many are needed."""
_ADDRESS = re.compile(r"([a-z][a-z0-9+.-]+)://(.*)", re.IGNORECASE | re.DOTALL)
_LOST_SLASH = re.compile(r"[a-z][a-z0-9+.-]+:", re.IGNORECASE)
BATCH = 8 * AT_ONCE
Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True, order=True)
class RemotePath:
    """A file or a folder of an object store: methods do what those of `pathlib.Path` do.

    Attributes:
        scheme: of its address, "s3".
        key: the rest of it, "bucket/run".
    """

    scheme: str
    key: str

    def __str__(self) -> str:
        return f"{self.scheme}://{self.key}"

    def __truediv__(self, name: str | os.PathLike[str]) -> RemotePath:
        joined = posixpath.normpath(posixpath.join(self.key, os.fspath(name)))
        if joined.startswith(".."):
            raise ValueError(f"{str(self)!r} has no {os.fspath(name)!r}: it leads out of the store")
        return RemotePath(self.scheme, joined)

    @property
    def name(self) -> str:
        return posixpath.basename(self.key)

    @property
    def stem(self) -> str:
        return PurePosixPath(self.key).stem

    @property
    def suffix(self) -> str:
        return PurePosixPath(self.key).suffix

    @property
    def parent(self) -> RemotePath:
        return RemotePath(self.scheme, posixpath.dirname(self.key))

    def with_name(self, name: str) -> RemotePath:
        return self.parent / name

    def expanduser(self) -> RemotePath:
        return self

    def absolute(self) -> RemotePath:
        return self

    def exists(self) -> bool:
        return self._kind() is not None

    def is_file(self) -> bool:
        return self._kind() == "file"

    def is_dir(self) -> bool:
        return self._kind() == "directory"

    def size(self) -> int:
        """Return the bytes of a file; raise FileNotFoundError if there is none."""
        info = self._do("info")
        if info["type"] != "file":
            raise FileNotFoundError(f"no file {str(self)!r}")
        return int(info["size"])

    def read_bytes(self) -> bytes:
        return bytes(self._do("cat_file"))

    def write_bytes(self, data: bytes) -> None:
        """Write it whole, or not at all: others see it when all of it is there."""
        self._do("pipe_file", data)

    def create(self, data: bytes) -> bool:
        """Write it if it is not there; return whether it was not. The store decides that."""
        try:
            self._do("pipe_file", data, mode="create")
        except FileExistsError:
            return False
        return True

    def unlink(self, missing_ok: bool = False) -> None:
        try:
            self._do("rm_file")
        except FileNotFoundError:
            if not missing_ok:
                raise

    def mkdir(self, parents: bool = False, exist_ok: bool = False) -> None:
        """Do nothing: a folder is there when a file is in it."""

    def iterdir(self) -> Iterator[RemotePath]:
        """Yield what is in a folder, by name; nothing if there is none."""
        return (self / name for name in sorted(self._entries()))

    def glob(self, pattern: str) -> Iterator[RemotePath]:
        """Yield what fits a pattern; `*`, `?` and `[...]` stand for parts of one name."""
        first, _, rest = pattern.partition("/")
        if any(sign in first for sign in "*?["):
            paths = [path for path in self.iterdir() if fnmatchcase(path.name, first)]
        else:
            paths = [self / first] if rest or (self / first).exists() else []
        for path in paths:
            yield from path.glob(rest) if rest else [path]

    def _entries(self) -> dict[str, dict[str, Any]]:
        """Return what the store says of each thing in a folder, by its name."""
        try:
            entries = self._do("ls", detail=True)
        except (FileNotFoundError, NotADirectoryError):
            return {}
        keys = {entry["name"].strip("/"): entry for entry in entries}
        # A store may list the folder itself, and a file that is asked for as a folder.
        keys.pop(self.key.strip("/"), None)
        return {posixpath.basename(key): entry for key, entry in keys.items()}

    def _kind(self) -> str | None:
        try:
            return str(self._do("info")["type"])
        except FileNotFoundError:
            return None

    def _do(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """Call fsspec; what goes wrong is an OSError that names the address."""
        system, key = _connect(str(self))
        try:
            return getattr(system, method)(key, *args, **kwargs)
        except FileExistsError:
            raise
        except (FileNotFoundError, KeyError) as error:
            raise FileNotFoundError(f"no file {str(self)!r} ({one_line(error)})") from error
        except Exception as error:  # each store has errors of its own
            raise OSError(f"cannot reach {str(self)!r}: {one_line(error)}") from error


AnyPath = Path | RemotePath


def _connect(address: str) -> tuple[Any, str]:
    """Return the file system of an address, and its key there."""
    try:
        import fsspec
    except ImportError as error:
        raise ImportError(
            f"{address!r} needs fsspec: pip install 'lookback-vlm[remote]'"
        ) from error
    try:
        system, key = fsspec.url_to_fs(address, use_listings_cache=False)
    except ImportError as error:
        raise ImportError(
            f"{address!r}: {one_line(error)} (pip install 'lookback-vlm[remote]' has what s3:// "
            "needs; others have packages of their own, e.g. gcsfs for gs://)"
        ) from error
    except Exception as error:
        raise ValueError(f"{address!r} is no address of a store: {one_line(error)}") from error
    return system, key


def is_remote(name: object) -> bool:
    """Return whether it names something in an object store: no path, and no other URL."""
    if isinstance(name, RemotePath):
        return True
    match = _ADDRESS.match(name) if isinstance(name, str) else None
    return match is not None and match[1].lower() in STORES


def to_path(name: str | os.PathLike[str] | RemotePath) -> AnyPath:
    """Return a path on this machine, or one in an object store: "s3://bucket/run".

    Raises:
        ValueError: it is another address, or was one before a `Path` was made of it.
    """
    if isinstance(name, RemotePath):
        return name
    if not isinstance(name, str):
        return _checked(Path(name))
    match = _ADDRESS.match(name)
    if match is None:
        return Path(name)
    scheme, rest = match[1].lower(), match[2]
    if scheme in LOCAL:
        return Path(rest)
    if scheme not in STORES:
        raise ValueError(
            f"{name!r:.200} is no place for runs and data: give a path, or an address of an object "
            f"store ({', '.join(STORES)})"
        )
    if not rest.strip("/"):
        raise ValueError(f"{name!r} names no folder: write {scheme}://BUCKET/FOLDER")
    return RemotePath(scheme, posixpath.normpath(rest))


def _checked(path: Path) -> Path:
    """`Path("s3://bucket")` is "s3:/bucket", a folder here: nobody means that."""
    first = path.parts[0] if path.parts else ""
    if len(first) > 2 and _LOST_SLASH.fullmatch(first) and not path.exists():
        raise ValueError(f"{str(path)!r} was an address: give it as text, not as a Path")
    return path


def readable(path: AnyPath) -> Path | io.BytesIO:
    """Return what libraries open: the path if it is local, else all its bytes."""
    return path if isinstance(path, Path) else io.BytesIO(path.read_bytes())


def size_of(path: AnyPath) -> int:
    return path.size() if isinstance(path, RemotePath) else path.stat().st_size


def size_below(folder: AnyPath) -> int:
    """Return the bytes of all files below a folder."""
    if isinstance(folder, RemotePath):
        return int(folder._do("du"))
    files = (os.path.join(place, name) for place, _, names in os.walk(folder) for name in names)
    return sum(os.lstat(file).st_size for file in files)


def names_in(folder: AnyPath) -> list[str]:
    """Return the names of what is in a folder; none if there is none."""
    if isinstance(folder, RemotePath):
        return sorted(folder._entries())
    return sorted(os.listdir(folder)) if folder.is_dir() else []


def in_order(paths: Iterable[AnyPath]) -> list[AnyPath]:
    return sorted(paths, key=str)


def sizes_in(folder: AnyPath) -> dict[str, int]:
    """Return the bytes of each file in a folder, by name: one request, however many."""
    if isinstance(folder, RemotePath):
        entries = folder._entries().items()
        return {name: int(entry["size"]) for name, entry in entries if entry["type"] == "file"}
    if not folder.is_dir():
        return {}
    with os.scandir(folder) as entries_here:
        return {entry.name: entry.stat().st_size for entry in entries_here if entry.is_file()}


def each(
    folder: AnyPath, function: Callable[[Item], Result], items: Iterable[Item]
) -> Iterator[Result]:
    """Yield a function of each item, in order; in a store several at once, as each takes long."""
    if isinstance(folder, Path):
        yield from map(function, items)
        return
    from concurrent.futures import ThreadPoolExecutor

    left = iter(items)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        while batch := list(islice(left, BATCH)):  # results that wait take memory
            yield from pool.map(function, batch)
