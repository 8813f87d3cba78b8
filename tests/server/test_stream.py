"""Streams: comments while candidates are written, then the best; one candidate goes out live."""

import json

import numpy as np
import pytest
from server.serving import asked, chat, embedded, plain
from toy_engine import ToyEngine

from lookback.server.requests import parse_chat_request
from lookback.server.responses import Stream, logprobs, token_texts
from lookback.server.schema import ChatRequest
from lookback.server.settings import Settings
from lookback.signals import SIGNALS, WRITING, Candidate, Signals

DRAW = {"seed": 7, "temperature": 1.0, "top_p": 0.9, "max_tokens": 24}
SAME = {"seed": 7, "temperature": 1.0, "top_p": 0.9, "max_new_tokens": 24}


def streamed(client, **body):
    """The comments, the chunks, and whether it ended well."""
    answer = chat(client, **asked(**DRAW, stream=True) | body)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/event-stream")
    comments, chunks, done = [], [], False
    for line in answer.text.splitlines():
        if line.startswith(": lookback "):
            comments.append(json.loads(line.removeprefix(": lookback ")))
        elif line == "data: [DONE]":
            done = True
        elif line:
            assert line.startswith("data: "), line
            chunks.append(json.loads(line.removeprefix("data: ")))
    return comments, chunks, done


def joined(chunks, place=0):
    """The text of one choice."""
    choices = [c for chunk in chunks for c in chunk["choices"] if c["index"] == place]
    return "".join(c["delta"].get("content") or "" for c in choices), choices


@pytest.mark.parametrize("best_of", [1, 4])
def test_a_stream_says_what_an_answer_says(client, best_of):
    more = {"lookback": {"best_of": best_of}, "logprobs": True, "top_logprobs": 2}
    _, chunks, done = streamed(client, **more)
    whole = chat(client, **asked(**DRAW, **more)).json()
    text, choices = joined(chunks)
    (choice,) = whole["choices"]
    assert done
    assert text == choice["message"]["content"]
    assert choices[0]["delta"]["role"] == "assistant"
    assert choices[-1]["finish_reason"] == choice["finish_reason"]
    assert [c["finish_reason"] for c in choices[:-1]] == [None] * (len(choices) - 1)
    assert choices[-1]["lookback"] == choice["lookback"]
    assert chunks[-1]["lookback"] == whole["lookback"]
    told = [token for c in choices if c["logprobs"] for token in c["logprobs"]["content"]]
    assert told == choice["logprobs"]["content"]
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    assert len({chunk["id"] for chunk in chunks}) == 1


def test_several_choices_and_the_usage(client):
    options = {"stream_options": {"include_usage": True}, "n": 3, "lookback": {"best_of": 4}}
    _, chunks, done = streamed(client, **options)
    whole = chat(client, **asked(**DRAW, n=3, lookback={"best_of": 4})).json()
    for place, choice in enumerate(whole["choices"]):
        assert joined(chunks, place)[0] == choice["message"]["content"]
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"] == whole["usage"]
    assert {chunk["usage"] for chunk in chunks[:-1]} == {None}
    assert done


def test_one_candidate_goes_out_live_with_its_signals(client):
    _, chunks, _ = streamed(client, lookback={"best_of": 1})
    (wanted,) = embedded().sample(messages=plain(), n=1, **SAME)
    told = [c["lookback"] for c in joined(chunks)[1] if "start" in c.get("lookback", {})]
    assert [one["start"] for one in told] == [
        sum(len(one["tokens"]) for one in told[:i]) for i in range(len(told))
    ]
    assert [t for one in told for t in one["tokens"]] == list(wanted.tokens)
    for name in SIGNALS:
        values = [value for one in told for value in one[name]]
        np.testing.assert_allclose(values, getattr(wanted, name), atol=1e-6)


def test_candidates_are_told_while_they_are_written(client):
    options = {"best_of": 6, "watch": True, "prune": [[6, 3]], "signals": True}
    comments, chunks, _ = streamed(client, n=6, lookback=options)
    known = {}
    for one in [c for event in comments for c in event.get("candidates", [])]:
        old = known.setdefault(one["index"], {"tokens": [], "visual_lookback": [], "finish": None})
        assert old["finish"] is None
        for name in ("tokens", "visual_lookback"):
            old[name][one["start"] :] = one[name]
        old["finish"] = one["finish"]
    final = {}
    for place in range(6):
        facts = joined(chunks, place)[1][-1]["lookback"]
        final[facts["index"]] = {
            name: facts[name] for name in ("tokens", "visual_lookback", "finish")
        }
    assert known == final
    assert sum(one["finish"] == "pruned" for one in final.values()) > 0


def test_progress_is_told(client):
    comments, _, _ = streamed(client, lookback={"best_of": 6})
    steps = [one for one in comments if one["event"] == "progress"]
    assert steps
    for one in steps:
        assert one["writing"] + one["ended"] + one["pruned"] == 6
        assert one["at_most"] == 24
    assert [one["written"] for one in steps] == sorted(one["written"] for one in steps)


@pytest.mark.parametrize("best_of", [1, 3])
def test_words_alone_are_streamed_and_ranked_by_log_p(client, best_of):
    body = {"messages": [{"role": "user", "content": "Hi!"}], "lookback": {"best_of": best_of}}
    _, chunks, done = streamed(client, **body)
    whole = chat(client, **asked(**DRAW) | body).json()
    assert done
    assert joined(chunks)[0] == whole["choices"][0]["message"]["content"]
    assert chunks[-1]["lookback"] == whole["lookback"]
    assert "mean_log_prob" in whole["lookback"]["note"]


def test_stop_texts_do_not_go_out(client):
    for best_of in (1, 3):
        body = {"stop": [" picture", "zzz"], "lookback": {"best_of": best_of}}
        _, chunks, _ = streamed(client, **body)
        whole = chat(client, **asked(**DRAW, **body)).json()
        text = joined(chunks)[0]
        assert text == whole["choices"][0]["message"]["content"]
        assert " picture" not in text


@pytest.mark.parametrize(
    ("tokens", "text"),
    [
        ([" A", " cat", "."], "A cat."),
        (["A", " cat"], "A cat"),
        ([" ", "A"], "A"),
        (["A", "\ufffd", "é"], "Aé"),
        ([], ""),
        (["A", " B", "C"], "A B"),
    ],
)
def test_pieces_make_the_text(tokens, text):
    assert "".join(token_texts(candidate(tokens, text))) == text


def candidate(tokens, text, finish="end"):
    values = np.full(len(tokens), -1.0)
    signals = Signals(np.arange(len(tokens)), tuple(tokens), values, -values, -values, -values)
    return Candidate(0, text, signals, finish=finish)


def test_a_character_that_is_not_whole_yet_does_not_go_out():
    request = ChatRequest(**asked(lookback={"best_of": 1}, logprobs=True))
    live = Stream({}, parse_chat_request(ToyEngine(), request, Settings())).live
    told = [
        *live.update([candidate(["A"], "A", WRITING)]),
        *live.update([candidate(["A", " \ufffd"], "A \ufffd", WRITING)]),
        *live.update([candidate(["A", "", " é"], "A é", WRITING)]),
        *live.finish(candidate(["A", "", " é", "!"], "A é!")),
    ]
    choices = [json.loads(line.removeprefix("data: "))["choices"][0] for line in told]
    assert [one["delta"]["content"] for one in choices] == ["", "A", " ", "é", "!"]
    tokens = [token for one in choices for token in one.get("lookback", {}).get("tokens", [])]
    assert tokens == ["A", "", " é", "!"]
    spelled = [
        token["token"]
        for one in choices
        for token in (one["logprobs"] or {"content": []})["content"]
    ]
    assert spelled == tokens


def test_part_of_a_character_has_no_bytes():
    content = logprobs(candidate(["é", "\ufffd", "a\ufffd"], "é"))["content"]
    assert [one["bytes"] for one in content] == [[0xC3, 0xA9], None, None]
