"""Videos: which frames of a file are taken, and what is said of what is no video."""

import os
import sys

import numpy as np
import pytest
from engines.reference import noise
from PIL import Image

from lookback.conversations import Conversation
from lookback.io import videos
from lookback.io.limits import LimitError
from lookback.io.videos import FRAMES, is_video, load_video

av = pytest.importorskip("av", reason="PyAV is not installed")


def write(path, frames, size=(64, 48)):
    """A video whose frame k has the grey level 2 k + 20."""
    with av.open(str(path), "w") as container:
        stream = container.add_stream("mpeg4", rate=10)
        stream.width, stream.height, stream.pix_fmt = *size, "yuv420p"
        for number in range(frames):
            grey = np.full((size[1], size[0], 3), 2 * number + 20, dtype=np.uint8)
            for packet in stream.encode(av.VideoFrame.from_ndarray(grey, format="rgb24")):
                container.mux(packet)
        for packet in stream.encode():
            container.mux(packet)
    return path


def numbers(frames):
    """Which frames these are, by their grey level."""
    return [round((float(np.asarray(frame).mean()) - 20) / 2) for frame in frames]


@pytest.mark.parametrize(
    ("total", "count", "expected"),
    [(80, 8, range(5, 80, 10)), (80, 4, [10, 30, 50, 70]), (5, 8, range(5)), (1, 8, [0])],
)
def test_frames_are_taken_at_even_distances(tmp_path, total, count, expected):
    found = load_video(write(tmp_path / "a.mp4", total), count)
    assert np.abs(np.array(numbers(found)) - np.array(list(expected))).max() <= 1
    assert len(found) == len(expected)
    assert {frame.mode for frame in found} == {"RGB"}
    assert {frame.size for frame in found} == {(64, 48)}


def test_the_frames_themselves_are_all_taken(tmp_path):
    noise().save(tmp_path / "a.png")
    frames = [noise(1), tmp_path / "a.png", *[noise(2)] * 20]
    assert len(load_video(frames)) == 22 > FRAMES


def test_what_is_no_video_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no video file 'gone.mp4'"):
        load_video("gone.mp4")
    (tmp_path / "text.mp4").write_text("hello")
    with pytest.raises(ValueError, match=r"cannot read the video .*text.mp4"):
        load_video(tmp_path / "text.mp4")
    with pytest.raises(ValueError, match="at least one frame"):
        load_video([])
    whole = write(tmp_path / "a.mp4", 30).read_bytes()
    (tmp_path / "cut.mp4").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match=r"cannot read the video .*cut.mp4"):
        load_video(tmp_path / "cut.mp4")


def test_without_pyav_it_says_what_to_install(tmp_path, monkeypatch):
    path = write(tmp_path / "a.mp4", 3)
    monkeypatch.setitem(sys.modules, "av", None)
    with pytest.raises(ImportError, match=r"lookback-vlm\[video\]"):
        load_video(path)
    assert len(load_video([noise()])) == 1


@pytest.mark.parametrize("name", ["a.mp4", "A.MOV", "x/y.webm"])
def test_videos_are_known_by_their_ending(name):
    assert is_video(name)
    assert not is_video(name + ".png")
    assert not is_video(Image.new("RGB", (2, 2)))


def test_a_video_in_a_conversation_keeps_its_name(tmp_path):
    path = write(tmp_path / "a.mp4", 20)
    asked = Conversation.of(None, "what?", video=path)
    assert len(asked.videos[0]) == FRAMES
    assert asked.to_json()[0]["content"][0] == {"type": "video", "video": str(path)}
    again = Conversation.from_messages(asked.to_json())
    assert numbers(again.videos[0]) == numbers(asked.videos[0])
    both = Conversation.of(noise(), "what?", video=[noise(), noise(1)])
    assert [part.kind for part in both.turns[0].parts] == ["image", "video", "text"]


def test_the_shell_takes_a_video(tmp_path, command, monkeypatch):
    from toy_engine import load  # registers the engine

    assert load
    monkeypatch.setenv("LOOKBACK_PLUGINS", "")
    clip = write(tmp_path / "clip.mp4", 20)
    code, out, err = command("ask", clip, "what?", "-n", 2, "--engine", "toy", "--json")
    assert code == 0, err
    assert '"type": "video"' in out
    code, _, err = command("ask", clip, "what?", "--image", clip, "--engine", "toy")
    assert code == 1
    assert "one video at a time" in err


def test_what_a_clip_costs_is_limited(tmp_path, monkeypatch):
    path = write(tmp_path / "a.mp4", 20)
    monkeypatch.setenv("LOOKBACK_MAX_VIDEO_FRAMES", "19")
    with pytest.raises(LimitError, match=r"20 frames, and the limit is 19 .*MAX_VIDEO_FRAMES="):
        load_video(path)
    monkeypatch.setenv("LOOKBACK_MAX_VIDEO_FRAMES", "20")
    assert len(load_video(path)) == FRAMES
    decoded = []
    monkeypatch.setattr(videos, "_evenly", lambda container, _: decoded.extend(one(container)))
    monkeypatch.setenv("LOOKBACK_MAX_VIDEO_PIXELS", str(64 * 48 - 1))
    with pytest.raises(LimitError, match=r"\(64 x 48\) is too large: 3,072 pixels.*VIDEO_PIXELS="):
        load_video(path)
    assert not decoded
    monkeypatch.setenv("LOOKBACK_MAX_VIDEO_PIXELS", str(64 * 48))
    load_video(path)
    assert len(decoded) == 1
    monkeypatch.setenv("LOOKBACK_MAX_VIDEO_MIB", "1")
    path.write_bytes(path.read_bytes() + bytes(2**20))
    with pytest.raises(LimitError, match=r"1\.0 MiB, and the limit is 1 MiB: .*VIDEO_MIB="):
        load_video(path)


def one(container):
    """The first frame that is decoded within the limits."""
    return [next(videos._decoded(container))]


def test_a_pipe_is_no_video(tmp_path):
    os.mkfifo(tmp_path / "a.mp4")
    with pytest.raises(ValueError, match=r"a\.mp4' is a pipe: a regular file is needed"):
        load_video(tmp_path / "a.mp4")


def test_a_video_of_an_unknown_codec_is_one_line(command, tmp_path):
    path = tmp_path / "drawing.mp4"
    path.write_text('<svg xmlns="http://www.w3.org/2000/svg"><image href="x"/></svg>')
    status, out, err = command("ask", path, "What is it?", "-n", "2")
    assert (status, out, err.count("\n")) == (1, "", 1)
    assert "drawing.mp4" in err
    assert "this is a bug" not in err
