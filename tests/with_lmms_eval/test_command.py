"""The real command line, offline, on local tasks: its answers are those chosen by hand."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from local_tasks import BLIND, COUNT, scenes, write

from lookback.runs.sources import item_seed

DRAWN = {"n": 3, "temperature": 1.2, "top_p": 0.9}
PLAIN = {**DRAWN, "max_new_tokens": 12}
TURNS = {**DRAWN, "max_new_tokens": 10, "stop": ["e"]}
SEED = 7
BLIND_QUESTION = "What colour is the cup?"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A function from tasks and options to the samples of each task, the log and the output."""
    folder = write(tmp_path_factory.mktemp("tasks"))

    def start(tasks, *options, command=(str(Path(sys.executable).parent / "lmms-eval"),)):
        out = tmp_path_factory.mktemp("out")
        log = out / "log.jsonl"
        command = [*command, "--model", "lookback"]
        command += ["--model_args", f"n=3,seed={SEED},log={log}", "--tasks", ",".join(tasks)]
        command += ["--include_path", str(folder), "--output_path", str(out), "--log_samples"]
        env = os.environ | {"HF_HOME": str(folder / "hf"), "HF_DATASETS_OFFLINE": "1"}
        done = subprocess.run(
            [*command, *options], env=env, capture_output=True, text=True, timeout=900
        )
        assert "Error during evaluation" not in done.stderr, done.stderr[-3000:]  # its status is 0
        samples = {task: _samples(out, task) for task in tasks}
        logs = [file.read_text().splitlines() for file in sorted(out.glob("log*.jsonl"))]
        lines = [json.loads(line) for one in logs for line in one]
        return samples, lines, done.stdout + done.stderr

    return start


@pytest.fixture(scope="module")
def chat(run):
    return run(["scenes_plain", "scenes_turns"])


@pytest.fixture(scope="module")
def simple(run):
    tasks = ["scenes_plain", "scenes_turns", "scenes_choice"]
    return run(tasks, "--force_simple", "--batch_size", "3")


def _samples(out, task):
    [file] = out.rglob(f"*_samples_{task}.jsonl")
    found = [json.loads(line) for line in file.read_text().splitlines()]
    return {one["doc_id"]: one for one in found}


def _said(sample):
    """The answer as lmms-eval kept it."""
    found = sample["filtered_resps"]
    while isinstance(found, list):
        [found] = found
    return found


def _seed(task, doc_id):
    return item_seed(SEED, f"{task}/test/{doc_id}")


def _pictures():
    return [item.conversation.images[0] for item in scenes()]


def _plain(lb, doc_id):
    """What `lookback` itself draws for a document of scenes_plain."""
    item = scenes()[doc_id]
    seed = _seed("scenes_plain", doc_id)
    return lb.sample(item.conversation.images[0], item.question, seed=seed, **PLAIN)


@pytest.mark.parametrize("kind", ["chat", "simple"])
def test_answers_are_the_best_of_n_by_hand(kind, request, lb):
    samples, lines, _ = request.getfixturevalue(kind)
    logged = {(one["task"], one["doc_id"]): one for one in lines}
    for doc_id in range(COUNT):
        expected = _plain(lb, doc_id)
        assert len({one.text for one in expected}) > 1  # there is something to choose
        sample = samples["scenes_plain"][doc_id]
        assert _said(sample) == expected.best("lookback").text.strip()
        tokens = sum(len(one.token_ids) for one in expected)
        counts = {"input_tokens": len(expected.prompt_ids), "output_tokens": tokens}
        assert sample["token_counts"] == [counts]
        line = logged["scenes_plain", doc_id]
        assert [one["text"] for one in line["candidates"]] == [one.text for one in expected]
        scores = [one["score"] for one in line["candidates"]]
        assert scores == pytest.approx(expected.scores("lookback").tolist(), abs=1e-5)
        assert line["best"] == expected.best("lookback").index
        assert line["sampling"]["seed"] == _seed("scenes_plain", doc_id)


def test_both_kinds_of_requests_say_the_same_of_one_image(chat, simple):
    for doc_id in range(COUNT + 1):
        first, second = (kind[0]["scenes_plain"][doc_id] for kind in (chat, simple))
        assert _said(first) == _said(second)


def test_without_an_image_the_mean_log_p_decides(chat, lb):
    drawn = lb.sample(
        None, BLIND_QUESTION, source="none", seed=_seed("scenes_plain", BLIND), **PLAIN
    )
    best = max(drawn.scorable(), key=lambda one: one.log_prob.mean())
    assert _said(chat[0]["scenes_plain"][BLIND]) == best.text.strip()
    [line] = [one for one in chat[1] if (one["task"], one["doc_id"]) == ("scenes_plain", BLIND)]
    assert line["source"] == "none"


def test_two_processes_share_the_documents_and_say_the_same(run, chat):
    two = (sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2")
    samples, lines, _ = run(["scenes_plain"], command=(*two, "-m", "lmms_eval"))
    assert [one["doc_id"] for one in lines] == [1, 3, 0, 2]  # log.1.jsonl, then log.jsonl
    said = {doc_id: _said(one) for doc_id, one in samples["scenes_plain"].items()}
    assert said == {doc_id: _said(one) for doc_id, one in chat[0]["scenes_plain"].items()}


def test_turns_images_and_stops_reach_the_model(chat, lb):
    pictures = _pictures()
    for doc_id in range(COUNT):
        second = pictures[(doc_id + 1) % COUNT]
        turns = [
            {"role": "user", "content": [_image(pictures[doc_id]), _text("What is this?")]},
            {"role": "assistant", "content": "A scene."},
            {"role": "user", "content": [_image(second), _text(scenes()[doc_id].question)]},
        ]
        expected = lb.sample(messages=turns, seed=_seed("scenes_turns", doc_id), **TURNS)
        said = _said(chat[0]["scenes_turns"][doc_id])
        assert said == _best(expected)
        assert "e" not in said
    assert "scenes_turns: LookBack does nothing with {'repetition_penalty': 1.2}" in chat[2]


def test_images_stand_where_the_text_has_places_for_them(simple, lb):
    pictures = _pictures()
    for doc_id in range(COUNT):
        content = [
            _text("First "),
            _image(pictures[doc_id]),
            _text(" then "),
            _image(pictures[(doc_id + 1) % COUNT]),
            _text(" " + scenes()[doc_id].question),
        ]
        turns = [{"role": "user", "content": content}]
        expected = lb.sample(messages=turns, seed=_seed("scenes_turns", doc_id), **TURNS)
        assert _said(simple[0]["scenes_turns"][doc_id]) == _best(expected)


def test_choices_are_made_by_the_highest_probability(simple, lb):
    """lmms-eval takes the lowest of what a model gives it."""
    choices = ["red", "blue", "a dog with two heads"]
    for doc_id, item in enumerate(scenes()):
        scored = lb.score(item.conversation.images[0], item.question, choices)
        means = [float(one.log_prob.mean()) for one in scored]
        sample = simple[0]["scenes_choice"][doc_id]
        assert sample["acc"] == float(means.index(max(means)) == 0)  # "red" is the target
        given = [pair[0] for pair in _pairs(sample["filtered_resps"])]
        assert [float(one) for one in given] == pytest.approx([-m for m in means], abs=1e-4)


def _pairs(found):
    return [one[0] if isinstance(one[0], (list, tuple)) else one for one in found]


def _best(candidates):
    return candidates.best("lookback").text.strip() if len(candidates.scorable()) else ""


def _image(picture):
    return {"type": "image", "image": picture}


def _text(text):
    return {"type": "text", "text": text}
