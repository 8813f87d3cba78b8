"""Paths of object stores: what they have of `pathlib.Path` does what it does on disk."""

import pickle
import subprocess
import sys
import uuid
from pathlib import Path

import pytest
from s3_server import make_bucket

from lookback.io import storage
from lookback.io.files import check_file, read_bytes, read_unpacked
from lookback.io.images import load_image
from lookback.io.limits import LimitError
from lookback.io.storage import RemotePath, each, is_remote, names_in, readable, sizes_in, to_path


@pytest.fixture(params=["here", "memory", "s3"])
def folder(request, tmp_path):
    """An empty folder of each kind."""
    if request.param == "here":
        return tmp_path
    if request.param == "memory":
        return to_path(f"memory://{uuid.uuid4().hex}/x")
    request.getfixturevalue("s3_server")
    return to_path(f"{make_bucket()}/x")


def fill(folder, *names):
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(name.encode())


def test_files_and_folders(folder):
    fill(folder, "a.json", "b/c.json", "b/d/e.txt")
    for name, file, directory in [
        ("a.json", True, False),
        ("b", False, True),
        ("b/c.json", True, False),
        ("b/d", False, True),
        ("none", False, False),
        ("a.json/none", False, False),
    ]:
        path = folder / name
        assert (path.is_file(), path.is_dir(), path.exists()) == (
            file,
            directory,
            file or directory,
        ), name
    assert (folder / "b/c.json").read_bytes() == b"b/c.json"
    assert sorted(path.name for path in folder.iterdir()) == ["a.json", "b"] == names_in(folder)
    assert names_in(folder / "none") == names_in(folder / "a.json") == []
    assert sizes_in(folder) == {"a.json": 6}
    assert sizes_in(folder / "b") == {"c.json": 8}
    assert sizes_in(folder / "none") == {}
    (folder / "a.json").write_bytes(b"other")
    assert (folder / "a.json").read_bytes() == b"other"
    (folder / "a.json").unlink()
    (folder / "a.json").unlink(missing_ok=True)
    with pytest.raises(FileNotFoundError):
        (folder / "a.json").read_bytes()
    assert names_in(folder) == ["b"]


@pytest.mark.parametrize("pattern", ["*.json", "*", "b/*.json", "*/c.json", "b/c.json", "b/[xc]*"])
def test_patterns(folder, tmp_path, pattern):
    """As on disk: compared with what pathlib finds."""
    names = ("a.json", "a.JSON", "b/c.json", "b/d/c.json", "e/c.json", "f[1].json")
    fill(folder, *names)
    here = tmp_path / "same"
    fill(here, *names)
    expected = sorted(str(path)[len(str(here)) :] for path in here.glob(pattern))
    found = sorted(
        str(path)[len(str(folder)) :] for path in folder.glob(pattern) if "same" not in str(path)
    )
    assert found == expected != []


def test_names_of_paths():
    path, here = to_path("s3://bucket/run/items/00000.parquet"), Path("run/items/00000.parquet")
    for name in ("name", "stem", "suffix"):
        assert getattr(path, name) == getattr(here, name)
    assert str(path.parent) == "s3://bucket/run/items"
    assert str(path.with_name("x.json")) == "s3://bucket/run/items/x.json"
    assert str(path / "../y") == "s3://bucket/run/items/y"
    assert str(to_path("S3://bucket//run/./x/")) == "s3://bucket/run/x"
    assert path.absolute() == path.expanduser() == pickle.loads(pickle.dumps(path))
    assert sorted([path, path.parent]) == [path.parent, path]
    with pytest.raises(ValueError, match="leads out of the store"):
        to_path("s3://bucket/run") / "../../../x"


def test_what_is_where():
    assert to_path("runs/x") == Path("runs/x")
    assert to_path(Path("runs")) == Path("runs")
    assert to_path("file:///tmp/run") == Path("/tmp/run")
    assert to_path("C://runs") == Path("C://runs")
    assert isinstance(to_path("gs://bucket/run"), RemotePath)
    assert is_remote("s3://b/x")
    for name in (
        "x",
        "http://a/b",
        "https://a/b",
        "ftp://a/b",
        "file:///x",
        "data:image/png;base64,",
        None,
    ):
        assert not is_remote(name)
    with pytest.raises(
        ValueError, match="is no place for runs and data: give a path, or an address of"
    ):
        to_path("https://example.org/run")
    with pytest.raises(ValueError, match="was an address: give it as text, not as a Path"):
        to_path(Path("s3://bucket/run"))
    with pytest.raises(ValueError, match="write s3://BUCKET/FOLDER"):
        to_path("s3://")


def test_what_others_write_is_seen(s3_server):
    """By another connection, as another machine has one: a remembered listing would not tell."""
    import s3fs

    folder = to_path(f"{make_bucket()}/x")
    fill(folder, "a")
    assert (names_in(folder), sizes_in(folder)) == (["a"], {"a": 1})
    other = s3fs.S3FileSystem(skip_instance_cache=True)
    other.pipe_file(f"{folder.key}/b", b"22")
    other.pipe_file(f"{folder.key}/a", b"333")
    assert sizes_in(folder) == {"a": 3, "b": 2}
    assert ((folder / "b").size(), (folder / "a").size()) == (2, 3)
    other.rm_file(f"{folder.key}/a")
    assert (names_in(folder), (folder / "a").exists()) == (["b"], False)


def test_an_object_is_made_once(folder):
    if isinstance(folder, Path):
        pytest.skip("on disk there are locks")
    assert (folder / "x").create(b"first")
    assert not (folder / "x").create(b"second")
    assert (folder / "x").read_bytes() == b"first"


def test_files_that_anybody_may_have_made(folder, monkeypatch):
    fill(folder, "a.json")
    assert read_bytes(folder / "a.json") == b"a.json"
    with pytest.raises(FileNotFoundError):
        read_bytes(folder / "none")
    monkeypatch.setenv("LOOKBACK_MAX_DATA_MIB", "1")
    (folder / "large").write_bytes(bytes(2**20 + 1))
    from lookback.io.limits import DATA_MIB

    with pytest.raises(LimitError):
        check_file(folder / "large", DATA_MIB)


def test_archives(folder):
    import gzip
    import io
    import zipfile

    (folder / "a.json.gz").parent.mkdir(exist_ok=True)
    (folder / "a.json.gz").write_bytes(gzip.compress(b"[1]"))
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("a.json", "[2]")
    (folder / "a.zip").write_bytes(packed.getvalue())
    assert read_unpacked(folder / "a.json.gz", ".json") == b"[1]"
    assert read_unpacked(folder / "a.zip", ".json") == b"[2]"


def test_images_and_videos(folder, monkeypatch):
    import io

    import numpy as np
    from PIL import Image

    from lookback.io.videos import load_video

    data = io.BytesIO()
    Image.new("RGB", (3, 2), "red").save(data, "PNG")
    (folder / "a.png").write_bytes(data.getvalue())
    assert load_image(str(folder / "a.png")).getpixel((0, 0)) == (255, 0, 0)
    with pytest.raises(FileNotFoundError):
        load_image(str(folder / "none.png"))
    av = pytest.importorskip("av")
    film = io.BytesIO()
    with av.open(film, "w", format="mp4") as container:
        stream = container.add_stream("mpeg4", rate=5)
        stream.width = stream.height = 32
        for level in range(4):
            picture = np.full((32, 32, 3), 60 * level, np.uint8)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        container.mux(stream.encode())
    (folder / "a.mp4").write_bytes(film.getvalue())
    assert len(load_video(str(folder / "a.mp4"), 2)) == 2


def test_strangers_name_no_stores(monkeypatch):
    """A service that fetches what strangers name does not use its own credentials for them."""
    from lookback.io.fetch import FetchError
    from lookback.io.videos import load_video

    path = to_path(f"memory://{uuid.uuid4().hex}/a.png")
    path.write_bytes(b"x")
    with pytest.raises(FetchError, match="http"):
        load_image(str(path), policy="public")
    monkeypatch.setenv("LOOKBACK_FETCH", "public")
    with pytest.raises(FetchError, match="http"):
        load_image(str(path))
    with pytest.raises(ValueError, match="no store is asked"):
        load_video(str(path))


def test_each_keeps_the_order(folder, monkeypatch):
    monkeypatch.setattr(storage, "BATCH", 4)  # so that there are several, the last a short one
    names = [f"{number:02d}" for number in range(11)]
    fill(folder, *names)
    found = each(folder, lambda name: (folder / name).read_bytes(), names)
    assert list(found) == [name.encode() for name in names]


def test_libraries_open_what_is_there(folder):
    fill(folder, "a")
    opened = readable(folder / "a")
    assert (opened.read_bytes() if isinstance(opened, Path) else opened.read()) == b"a"


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("gs://bucket/run", "install gcsfs"),
        ("nonsense://bucket/run", "is no place for runs and data"),
        ("ftp://host/run", "is no place for runs and data"),
        ("https://host/run", "is no place for runs and data"),
    ],
)
def test_what_cannot_be_reached_is_named(address, said, command):
    if address.startswith("gs"):
        try:
            import gcsfs  # noqa: F401
        except ImportError:
            pass
        else:
            pytest.skip("gcsfs is installed")
    status, out, err = command("runs", "status", address)
    assert (status, out, err.count("\n")) == (1, "", 1)
    assert address in err
    assert said in err


def test_a_bucket_that_is_not_there(s3_server, command):
    for arguments in (
        ("runs", "verify", "s3://no-such-bucket/run"),
        ("run", "--benchmark", "own", "--data", "s3://no-such-bucket/x.jsonl"),
        ("study", "main", "s3://no-such-bucket/run"),
    ):
        status, out, err = command(*arguments)
        assert (status, out, err.count("\n")) == (1, "", 1)
        assert "no-such-bucket" in err


def test_without_fsspec_the_way_out_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(ImportError, match=r"needs fsspec: pip install 'lookback-vlm\[remote\]'"):
        to_path("s3://bucket/run").exists()


def test_local_paths_do_not_import_it(tmp_path):
    code = """
import sys
from lookback.runs.start import start
from lookback.runs.plan import Plan
from lookback.runs import open_run
from toy_engine import ToyEngine
Plan.load_engine = lambda plan: ToyEngine()
start(Plan("scenes-vqa", limit=3, n=2), sys.argv[1])
open_run(sys.argv[1]).quality()
print([name for name in sys.modules if name.split(".")[0] in ("fsspec", "s3fs", "aiohttp")])
"""
    tests = str(Path(__file__).parent)
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "run")],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": f"{Path(tests).parent}:{tests}", "HF_HUB_OFFLINE": "1", "PATH": ""},
    )
    assert done.stdout == "[]\n"
