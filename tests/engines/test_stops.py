"""Texts that end a response: where it is cut, and when drawing it may end."""

import numpy as np
import pytest

from lookback.engines.common.continuations import Continuation, StopTexts


class Spelling:
    """A tokenizer of a few words; alone, the tail of a response has lost its first blank."""

    words = ("A", " cat", " sat", ".", "\n", "\n\nQ", ": cats", " on", "at")

    def pieces(self, prompt_ids, ids):
        return [self.words[i] for i in ids]

    def decode(self, prompt_ids, ids):
        return "".join(self.pieces(prompt_ids, ids))

    def decode_all(self, ids):
        return self.decode([], ids).lstrip(" ")


def cut(ids, *texts):
    signals = np.arange(4 * len(ids), dtype=np.float32).reshape(4, -1)
    one = Continuation(ids, signals, "end", signals.T.copy())
    found = StopTexts(Spelling(), [], texts).cut(one)
    assert (found.signals == signals[:, : len(found.token_ids)]).all()
    assert (found.by_layer == signals.T[: len(found.token_ids)]).all()
    return found.token_ids, found.finish


@pytest.mark.parametrize(
    ("texts", "left"),
    [
        ([" sat"], [0, 1]),  # it begins with a token
        (["at"], [0]),  # inside of one, which goes with it
        (["A"], []),
        (["."], [0, 1, 2]),
        (["t."], [0, 1]),
        ([".", " sat", "zebra"], [0, 1]),  # the first in the text, not in the list
        (["zebra", ".", "cat sat"], [0]),
    ],
)
def test_a_response_is_cut_at_the_token_where_the_first_begins(texts, left):
    assert cut([0, 1, 2, 3], *texts) == (left, "stop")


@pytest.mark.parametrize("texts", [[], ["zebra"]])
def test_without_one_nothing_is_cut(texts):
    assert cut([0, 1, 2, 3], *texts) == ([0, 1, 2, 3], "end")


def reached(ids, *texts):
    return StopTexts(Spelling(), [], texts).reached(ids)


def test_it_is_reached_by_the_token_that_ends_it():
    assert not reached([0, 1, 2, 4], "\n\n", "sat.")
    assert reached([0, 1, 2, 4, 4], "\n\n", "sat.")
    assert reached([0, 1, 2, 3], "\n\n", "sat.")


def test_one_over_several_tokens_at_the_end_of_a_long_response():
    assert reached([*[7] * 500, 0, 1, 2, 3], "A cat sat.")
    assert not reached([*[7] * 500, 0, 1, 2], "A cat sat.")


def test_what_the_tail_alone_seems_to_say_is_asked_again():
    """Decoded by itself, " on on" begins without its blank: only the whole tells."""

    class Misleading(Spelling):
        def decode_all(self, ids):
            return "STOP" + super().decode_all(ids)

    assert not StopTexts(Misleading(), [], ["STOP"]).reached([0, 1])


@pytest.mark.parametrize("texts", [[""], ["a", ""]])
def test_an_empty_one_is_refused(texts):
    with pytest.raises(ValueError, match="must not be empty"):
        StopTexts(Spelling(), [], texts)


class Bytes(Spelling):
    """Every token is one byte of UTF-8."""

    def decode(self, prompt_ids, ids):
        return bytes(ids).decode("utf-8", errors="replace")

    def pieces(self, prompt_ids, ids):
        """A character's text stands at the token that completes it."""
        whole = [self.decode([], ids[: i + 1]).replace("\ufffd", "") for i in range(len(ids))]
        return [text[len(before) :] for before, text in zip(["", *whole], whole, strict=False)]


def test_a_stop_text_may_be_longer_in_byte_tokens_than_in_characters():
    """Ten characters of three bytes each are thirty tokens."""
    stop = "十個文字的停止文本啊"
    ids = [*("很長的開頭" * 20 + stop).encode()]
    assert StopTexts(Bytes(), [], [stop]).reached(ids)
    assert not StopTexts(Bytes(), [], [stop]).reached(ids[:-1])


def held(ids, *texts, spelling=None):
    one = Continuation(ids, np.zeros((4, len(ids)), np.float32), "length", None)
    return StopTexts(spelling or Spelling(), [], texts).hold(one).token_ids


@pytest.mark.parametrize(
    ("texts", "shown"),
    [
        (["."], [0, 1, 2]),  # nothing of it is there
        (["sat. The"], [0, 1]),  # begins inside the last token
        (["cat sat on"], [0]),  # and two tokens before the end
        (["t on", "cat sat on", "sat on"], [0]),  # the longest beginning counts, wherever listed
        (["cat sat"], [0, 1, 2]),  # a whole one is cut, not held back
    ],
)
def test_what_may_become_a_stop_text_of_several_tokens_is_held_back(texts, shown):
    assert held([0, 1, 2], *texts) == shown


def test_half_a_stop_text_in_bytes_is_held_back():
    ids = [*"你好停".encode()]
    assert held(ids, "停止", spelling=Bytes()) == [*"你好".encode(), *"停".encode()[:2]]
