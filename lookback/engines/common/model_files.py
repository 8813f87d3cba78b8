"""A model's files: folders and hub ids, its processor, a fingerprint of its weights."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import get_hf_file_metadata, hf_hub_url, try_to_load_from_cache
from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled
from transformers import AutoProcessor

from lookback.engines.common.fair_lock import survive_forks
from lookback.errors import error_line, first_line

LOADING = threading.RLock()
"""Held while transformers loads: it changes defaults of the whole process meanwhile (dtype and
device of new tensors), so two loads must not overlap."""
survive_forks(LOADING)

CACHED = (
    "config.json",
    "processor_config.json",
    "preprocessor_config.json",
    "tokenizer_config.json",
)
"""Files of a hub id: one of them is in the cache if a model or a processor is."""
WHOLE = 64 * 2**20  # weight files up to this size are hashed whole, of larger ones blocks
BLOCKS, BLOCK = 64, 2**18  # so many of so many bytes, evenly spread from the first byte to the last


def load_processor(name: str, **options: Any) -> Any:
    """Return the processor of a folder or hub id.

    Raises:
        OSError: there is no such folder or hub id.
        ValueError: its files are damaged, or have no tokenizer.
    """
    with LOADING, explaining(name):
        options |= hub_options(name, options.get("revision"))
        processor = AutoProcessor.from_pretrained(find_folder(name), **options)
    if getattr(processor, "tokenizer", None) is None:
        raise ValueError(
            f"{name!r} has a {type(processor).__name__} and no tokenizer in it: a processor for "
            "images and text is needed"
        )
    return processor


def find_folder(name: str | os.PathLike[str]) -> str:
    """Return a name as from_pretrained takes it; if it can only be a folder's, it must exist.

    Raises:
        FileNotFoundError: there is no such folder.
        NotADirectoryError: it is a file.
    """
    text = os.path.expanduser(os.fspath(name))
    path = Path(text)
    if path.is_file():
        raise NotADirectoryError(
            f"{text} is a file: a model is a folder with a config.json, or a hub id (owner/name)"
        )
    is_path = isinstance(name, os.PathLike) or text.startswith((".", "/", "~"))
    is_path = is_path or "\\" in text or text.endswith("/") or text.count("/") > 1
    if is_path and not path.is_dir():
        raise FileNotFoundError(
            f"there is no folder {text} (looked for {path.absolute()}): name a folder with a "
            "model's config.json and weights, or a hub id (owner/name)"
        )
    return text


def hub_options(name: str, revision: str | None = None) -> dict[str, Any]:
    """Return options that keep from_pretrained from retrying a hub that cannot be reached.

    It would retry seven times, for half a minute, for each file that is not in the cache. Here one
    request is made; if it fails, files are loaded from the cache.

    Raises:
        OSError: the hub cannot be reached, and nothing of this hub id is in the cache.
    """
    if Path(name).expanduser().exists():
        return {}
    try:
        get_hf_file_metadata(hf_hub_url(name, CACHED[0], revision=revision))
    except (HfHubHTTPError, OfflineModeIsEnabled, ValueError):
        # It answers, is offline by setting, or this is no hub id: from_pretrained reports it.
        return {}
    except Exception as error:
        # Errors of connections are those of the HTTP library that the hub's library uses.
        if not (isinstance(error, OSError) or type(error).__module__.startswith("httpx")):
            return {}
        paths = [try_to_load_from_cache(name, file, revision=revision) for file in CACHED]
        if not any(isinstance(path, str) for path in paths):
            raise OSError(f"no connection: {error_line(error)}") from error
        return {"local_files_only": True}
    return {}


@contextmanager
def explaining(name: str) -> Iterator[None]:
    """Turn errors of loading into one line: the name is unknown, or its files are damaged.

    A damaged file can fail anywhere in the libraries that read it, with any kind of error.
    """
    try:
        yield
    except (FileNotFoundError, NotADirectoryError, ImportError, MemoryError):
        raise
    except Exception as error:
        path = Path(name).expanduser()
        in_words = isinstance(error, OSError) or type(error) is ValueError
        if not in_words:
            raise ValueError(
                f"cannot load {name!r}: {error_line(error)}; are all its files there, and whole?"
            ) from error
        if path.exists() or not isinstance(error, OSError):
            raise  # the library says what is wrong
        raise OSError(
            f"cannot load {name!r}: there is no folder {path.absolute()}, and as a hub id it "
            f"failed ({first_line(error)}); check the name, run `hf download {name}` where there "
            "is a network, or `hf auth login` for a model that asks for consent"
        ) from error


def first_end_tokens(*places: Any) -> list[int]:
    """Return the end token ids of the first place that has any; ValueError if not integers."""
    return next((_whole_numbers(ids) for ids in places if ids is not None), [])


def _whole_numbers(ids: Any) -> list[int]:
    try:
        tensor = torch.as_tensor(ids).reshape(-1)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        tensor = torch.zeros(1)
    if tensor.numel() and tensor.dtype not in (torch.int64, torch.int32):
        raise ValueError(
            f"the model's eos_token_id is {ids!r:.60}: a whole number or a list of them is needed, "
            "see its generation_config.json"
        )
    return [int(token) for token in tensor]


def fingerprint(folder: Path) -> str | None:
    """Return a hash of a model's files, the same for the same weights; None without a folder.

    Of large files only some blocks are read, which training changes; other bytes do not count.
    """
    weights = [*folder.glob("*.safetensors")] or [*folder.glob("pytorch_model*.bin")]
    files = sorted([*weights, *folder.glob("config.json")])
    if not files or not folder.is_dir():
        return None
    digest = hashlib.sha256()
    for file in files:
        size = file.stat().st_size
        digest.update(f"{file.name} {size}\n".encode())
        if size <= WHOLE:
            digest.update(file.read_bytes())
            continue
        with file.open("rb") as opened:
            for i in range(BLOCKS):
                opened.seek(i * (size - BLOCK) // (BLOCKS - 1))
                digest.update(opened.read(BLOCK))
    return digest.hexdigest()[:16]
