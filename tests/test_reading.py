"""Files that anybody may have made: what is read of them, and what is refused."""

import gzip
import os
import struct
import tracemalloc
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lookback.benchmarks.files import read_json
from lookback.benchmarks.responses import read_responses
from lookback.io.files import check_inside, read_bytes, read_unpacked
from lookback.io.limits import DATA_MIB, LIMITS, Limit, LimitError


def packed(path, data, name="a.json", **settings):
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(data))
    else:
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, **settings) as archive:
            archive.writestr(name, data)
    return path


@pytest.mark.parametrize("ending", ["gz", "zip"])
def test_an_archive_is_unpacked_up_to_a_limit(tmp_path, monkeypatch, ending):
    path = packed(tmp_path / f"a.{ending}", b'"' + os.urandom(2**19).hex().encode() + b'"')
    assert len(read_json(path)) == 2**20
    monkeypatch.setenv("LOOKBACK_MAX_DATA_MIB", "1")
    with pytest.raises(LimitError, match=r"', unpacked, is too large: 1\.0 MiB.*MAX_DATA_MIB="):
        read_json(path)


@pytest.mark.parametrize("ending", ["gz", "zip"])
def test_an_archive_that_grows_beyond_reason_is_left_early(tmp_path, monkeypatch, ending):
    path = packed(tmp_path / f"a.{ending}", b"[" + b" " * (40 * 2**20) + b"]")
    with pytest.raises(LimitError, match=r"unpacks to over 1\d,.*LOOKBACK_MAX_PACKED_RATIO="):
        read_json(path)
    monkeypatch.setenv("LOOKBACK_MAX_PACKED_RATIO", "2000")
    assert read_json(path) == []


def test_what_an_archive_says_of_its_size_is_not_believed(tmp_path, monkeypatch):
    """A small number in the directory of a zip, for a member that is larger."""
    path = packed(tmp_path / "a.zip", b" " * (3 * 2**20))
    data = path.read_bytes()
    path.write_bytes(data.replace(struct.pack("<I", 3 * 2**20), struct.pack("<I", 10)))
    monkeypatch.setenv("LOOKBACK_MAX_DATA_MIB", "1")
    with pytest.raises(ValueError, match=r"cannot read .*a\.zip' as JSON|too large"):
        read_json(path)


def test_broken_archives_are_named(tmp_path):
    whole = packed(tmp_path / "whole.zip", b"[1, 2]" * 100).read_bytes()
    gz = gzip.compress(b"[1, 2]" * 100)
    cases = {
        "cut.zip": whole[:-30],
        "flipped.zip": whole[:45] + bytes([whole[45] ^ 255]) + whole[46:],
        "method.zip": whole.replace(b"\x08\x00", b"\x63\x00"),
        "encrypted.zip": whole.replace(
            b"PK\x01\x02\x14\x03\x14\x00\x00", b"PK\x01\x02\x14\x03\x14\x00\x01"
        ),
        "empty.zip": b"",
        "cut.gz": gz[:-9],
        "flipped.gz": gz[:15] + bytes([gz[15] ^ 255]) + gz[16:],
        "no.gz": b"hello",
        "empty.json": b"",
    }
    for name, data in cases.items():
        (tmp_path / name).write_bytes(data)
        with pytest.raises(ValueError, match=rf"cannot read .*{name}' as JSON: ."):
            read_json(tmp_path / name)


def test_members_are_read_and_never_written(tmp_path):
    """A name that leads out of the archive is only a name."""
    path = packed(tmp_path / "a.zip", b"[1]", name="../../a.json")
    assert read_unpacked(path, ".json") == b"[1]"
    assert os.listdir(tmp_path) == ["a.zip"]


def test_only_regular_files_hold_responses(tmp_path, command):
    os.mkfifo(tmp_path / "pipe.jsonl")
    (tmp_path / "ground_truth_objects.json").write_text('{"1": ["dog"]}')
    (tmp_path / "said.jsonl").write_text('{"id": 1, "response": "a dog"}')
    chair = ("evaluate", "chair", "--data", tmp_path, "--responses", tmp_path / "said.jsonl")
    for path, kind in ((tmp_path / "pipe.jsonl", "pipe"), (tmp_path, "directory")):
        with pytest.raises(ValueError, match=f"is a {kind}: a regular file is needed"):
            read_responses(path, [])
        for asked in (
            ("evaluate", "scenes-vqa", "--responses", path),
            (*chair, "--synonyms", path),
            ("score", "a.png", "What?", "--file", path),
        ):
            status, _, err = command(*asked)
            assert (status, f"is a {kind}" in err) == (1, True), asked
    with pytest.raises(ValueError, match="is a device"):
        read_bytes("/dev/zero")


def test_a_file_of_responses_is_of_limited_size(tmp_path, monkeypatch):
    monkeypatch.setenv("LOOKBACK_MAX_DATA_MIB", "1")
    (tmp_path / "a.jsonl").write_bytes(b"\n" * 2**20)
    assert read_responses(tmp_path / "a.jsonl", []).items == []
    (tmp_path / "a.jsonl").write_bytes(b"\n" * (2**20 + 1))
    with pytest.raises(LimitError, match=r"a\.jsonl' is too large: .* LOOKBACK_MAX_DATA_MIB="):
        read_responses(tmp_path / "a.jsonl", [])


def test_a_file_that_grows_meanwhile(tmp_path, monkeypatch):
    monkeypatch.setattr("lookback.io.files.check_file", lambda *_: None)
    monkeypatch.setenv("LOOKBACK_MAX_DATA_MIB", "1")
    (tmp_path / "a").write_bytes(bytes(2**20 + 1))
    with pytest.raises(LimitError):
        read_bytes(tmp_path / "a")


@given(st.lists(st.sampled_from(["a", "b", ".", "..", "", "link", "~", "c:"]), max_size=5))
def test_a_name_is_inside_only_if_its_file_is(tmp_path_factory, parts):
    """Against a slow check of what the name leads to, with a link that leads out."""
    base = tmp_path_factory.getbasetemp() / "inside"
    (base / "data" / "a").mkdir(parents=True, exist_ok=True)
    if not (base / "data" / "link").is_symlink():
        (base / "data" / "link").symlink_to(base)
    name = "/".join(parts)
    real = os.path.realpath(base / "data" / name)
    try:
        check_inside(base / "data", name)
    except ValueError:
        return  # some names are refused although they come back
    assert f"{real}/".startswith(f"{os.path.realpath(base / 'data')}/")
    assert ".." not in parts


def test_limits_are_whole_numbers_above_zero(monkeypatch):
    assert len({limit.variable for limit in LIMITS}) == len(LIMITS)
    limit = Limit("LOOKBACK_MAX_TEST", 7, "things")
    assert limit.most == 7
    limit.check(7, "this")
    with pytest.raises(
        LimitError, match=r"^this is too large: 8 things, and the limit is 7 things: "
    ):
        limit.check(8, "this")
    for given_text in ("0", "-1", "many", "1.5", "1e3", "²", "9" * 20):
        monkeypatch.setenv("LOOKBACK_MAX_TEST", given_text)
        with pytest.raises(ValueError, match="give a whole number of things above 0, or unset it"):
            limit.check(1, "this")
    monkeypatch.setenv("LOOKBACK_MAX_TEST", " 9 ")
    limit.check(9, "this")
    assert DATA_MIB.most == DATA_MIB.units * 2**20


def test_every_limit_is_documented():
    text = (Path(__file__).parents[1] / "docs" / "limits.md").read_text(encoding="utf-8")
    for limit in LIMITS:
        assert f"| `{limit.variable}` | {limit.default:,} {limit.unit} |" in text


def test_a_small_file_takes_little_memory(tmp_path):
    path = tmp_path / "small.txt"
    path.write_bytes(b"small")
    tracemalloc.start()
    try:
        assert read_bytes(path) == b"small"
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()
