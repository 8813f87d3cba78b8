"""`lookback run --data FILE`: a run of one's own data from the first line to a study."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
from engines.reference import noise
from toy_engine import ToyEngine

from lookback.benchmarks.metrics import METRICS
from lookback.runs import Run
from lookback.runs.items import item_images
from lookback.runs.plan import Plan
from lookback.runs.start import start


@pytest.fixture(autouse=True)
def engine(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LOOKBACK_DATA", raising=False)
    made = ToyEngine()
    monkeypatch.setattr(Plan, "load_engine", lambda plan: made)
    return made


def write(*lines, name="mine.jsonl"):
    for seed in range(3):
        noise(seed).save(f"{seed}.png")
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    Path(name).write_text("\n".join(texts), encoding="utf-8")


def line(number, **more):
    return {"id": f"q{number}", "image": f"{number % 3}.png", "question": f"What {number}?"} | more


def test_a_file_is_all_it_takes(command, engine):
    write(*(line(i) for i in range(3)))
    code, out, err = command("run", "--data", "mine.jsonl", "-n", 3)
    assert (code, out) == (0, "runs/embedded_own-mine_42: 3 items, 9 candidates, 0 failed\n")
    assert "3 of 3 items have no answers" in err
    run = Run("runs/embedded_own-mine_42")
    assert (run.benchmark, run.manifest.title) == ("own:mine", "mine")
    assert (run.ids, run.questions[1]) == (["q0", "q1", "q2"], "What 1?")
    assert np.isnan(run.quality()).all()
    assert np.isfinite(run.scores("lookback")[run.grid(run.lengths) > 0]).all()
    assert [question for question, _ in engine.sampled] == run.questions


def test_broken_lines_are_counted_and_the_rest_is_asked(command):
    write(line(0), "{", line(1, image="gone.png"), *[{"id": "x"}] * 6, line(2))
    code, out, err = command("run", "--data", "mine.jsonl", "-n", 2, "--out", "mine")
    assert code == 3
    assert out == "mine: 3 items, 4 candidates, 1 failed, 7 lines left out\n"
    assert "lookback: left out: line 2: not JSON" in err
    assert "lookback: and 2 more lines left out" in err
    assert "failed: q1: FileNotFoundError: no image file" in err
    assert Run("mine").manifest.left_out == 7
    write(line(0), "{")
    code, out, _ = command("run", "--data", "mine.jsonl", "-n", 2, "--out", "few", "--json")
    found = json.loads(out)
    assert (code, found["left_out"], found["manifest"]["left_out"]) == (3, 1, 1)
    write("{", "{")
    code, _, err = command("run", "--data", "mine.jsonl", "--out", "none")
    assert code == 1
    assert err.startswith("lookback: no line of 'mine.jsonl' can be used: line 1: not JSON")


def test_quality_is_by_the_metric_that_is_named(command):
    answers = ["red", "dog", "cup", "no"]
    write(line(0, answers=answers), line(1, answers=answers, metric="exact"), line(2))
    arguments = ("run", "--data", "mine.jsonl", "-n", 25, "--out", "mine")
    code, _, err = command(*arguments, "--metric", "contains")
    assert code == 0
    assert "'exact' compares them" not in err
    run = Run("mine")
    texts = np.array(run.texts).reshape(3, 25)
    named = [[bool(set(text.split()) & set(answers)) for text in row] for row in texts]
    equal = [[text in answers for text in row] for row in texts]
    assert run.quality()[0].tolist() == named[0]
    assert run.quality()[1].tolist() == equal[1]
    assert np.isnan(run.quality()[2]).all()
    assert 0 < sum(named[0]) < 25
    assert 0 < sum(equal[1]) < sum(named[1])
    code, _, err = command(*arguments)
    assert code == 1
    assert 'holds another run: its metric is "contains", not null' in err
    assert "1 of 3 items have answers and name no metric: 'exact' compares them" in err
    code, _, err = command("run", "--candidates", "mine", "--image", "none", "--out", "control")
    assert code == 0
    np.testing.assert_array_equal(Run("control").quality(), run.quality())


def test_a_metric_of_a_users_own_comes_with_a_plugin(command, monkeypatch):
    monkeypatch.setattr(METRICS, "entries", dict(METRICS.all()))
    monkeypatch.setenv("LOOKBACK_PLUGINS", "")
    metric = (
        "import lookback\n\n@lookback.metric('{}')\ndef mine(response, answers):\n    return {}\n"
    )
    Path("short.py").write_text(metric.format("short", "1 / (1 + len(response))"))
    Path("wrong.py").write_text(metric.format("wrong", "7"))
    write(line(0, answers="a", metric="short"))
    code, *_ = command("--plugin", "short.py", "run", "--data", "mine.jsonl", "--out", "mine")
    assert code == 0
    run = Run("mine")
    assert run.quality()[0].tolist() == [1 / (1 + len(text)) for text in run.texts]
    arguments = ("run", "--data", "mine.jsonl", "--out", "other", "--metric")
    code, _, err = command(*arguments, "beauty")
    assert (code, err.count("\n")) == (1, 1)
    assert "no metric named 'beauty'; there are: exact, contains, vqa, token_f1, choice" in err
    write(line(0, answers="a"))
    code, _, err = command("--plugin", "wrong.py", *arguments, "wrong")
    assert code == 1
    assert "lookback: metric 'wrong' gave 7: it must give a number from 0 to 1" in err


def test_another_content_is_another_run(command):
    write(line(0))
    command("run", "--data", "mine.jsonl", "--out", "mine")
    write(line(0), line(1))
    code, _, err = command("run", "--data", "mine.jsonl", "--out", "mine")
    assert code == 1
    assert "'mine' holds another run: its items is" in err


def test_studies_find_its_images_from_another_folder(command, tmp_path):
    write(*(line(i) for i in range(3)))
    command("run", "--data", "mine.jsonl", "--limit", 2, "--out", "mine")
    run = Run(tmp_path / "mine")
    assert run.manifest.data == str(tmp_path / "mine.jsonl")
    (tmp_path / "elsewhere").mkdir()
    os.chdir(tmp_path / "elsewhere")
    assert item_images(run)(1).tobytes() == noise(1).tobytes()


def test_a_name_for_the_benchmark_will_do(command):
    write(line(0))
    code, *_ = command("run", "--benchmark", "own", "--data", "mine.jsonl", "--out", "mine")
    assert code == 0
    assert Run("mine").benchmark == "own:mine"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--data", "."), "name a --benchmark (`lookback benchmarks` lists them), or a file"),
        (("--data", "gone.jsonl"), "'gone.jsonl' does not exist. Needed: a file of your own"),
        (("--data", "mine.txt"), "'mine.txt' is none of .jsonl, .csv, .parquet"),
        (("--benchmark", "scenes-vqa", "--metric", "exact"), "scenes-vqa has no setting metric"),
        (("--data", "mine.jsonl", "--split", "test"), "no split named 'test'; there is: all"),
    ],
)
def test_mistakes_are_one_line(command, arguments, said):
    write(line(0))
    Path("mine.txt").write_text("")
    code, out, err = command("run", *arguments, "--out", "mine")
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert said in err


def test_given_token_ids_are_what_is_scored(engine):
    write(*(line(i) for i in range(3)))
    lines = [
        {"id": "q0", "response": "a reddish dog", "token_ids": [0, 2]},
        {"id": "q0", "response": "blue"},
        {"id": "q1", "responses": ["red", "", "x"], "token_ids": [[0], [], [3, 3, 3]]},
        {"id": "q2", "responses": [{"text": "no", "token_ids": [4, 4]}, "yes", {"text": "two"}]},
    ]
    write(*lines, name="said.jsonl")
    run = start(Plan("own", data="mine.jsonl", candidates="said.jsonl"), "given").run
    found = [[(c.text, c.token_ids.tolist()) for c in run.candidates(row)] for row in range(3)]
    assert found == [
        [("a reddish dog", [0, 2]), ("blue", [1])],
        [("red", [0]), ("", []), ("x", [3, 3, 3])],
        [("no", [4, 4]), ("yes", [3]), ("two", [5])],
    ]
    scored = engine.score(noise(0), "What 0?", [[0, 2]])
    np.testing.assert_array_equal(run.candidates(0)[0].log_prob, scored[0].log_prob)


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"response": "a", "token_ids": "1"}, "token_ids are no list of whole numbers"),
        ({"response": "a", "token_ids": [1.5]}, "token_ids are no list of whole numbers"),
        ({"response": "a", "token_ids": [True]}, "token_ids are no list of whole numbers"),
        ({"response": "a", "token_ids": [-1]}, "token_ids are no list of whole numbers"),
        ({"response": "a", "token_ids": []}, "token_ids are empty, and the response is not: 'a'"),
        ({"responses": ["a", "b"], "token_ids": [[1]]}, "not a list per response: 1 for 2"),
        ({"responses": ["a", "b"], "token_ids": [1, 2]}, "token_ids are no list of whole numbers"),
        ({"responses": ["a"], "token_ids": {}}, "not a list per response: {} for 1"),
        ({"responses": [{"text": "a"}], "token_ids": [[1]]}, "these must then be strings"),
        ({"responses": [{"token_ids": [1]}]}, "the response is not a string but None"),
        ({"responses": "a"}, "the responses are no list of strings but 'a'"),
        ({"responses": ["a" * 1_000_001]}, "1,000,001 characters"),
        ({"responses": ["\ud83d"]}, "half a character"),
        ({"responses": [3]}, "the responses are no list of strings but [3]"),
    ],
)
def test_wrong_token_ids_are_named_with_their_line(command, entry, said):
    write(line(0))
    write({"id": "q0", "response": "fine"}, {"id": "q0"} | entry, name="said.jsonl")
    code, _, err = command("run", "--data", "mine.jsonl", "--candidates", "said.jsonl")
    assert code == 1
    assert "'said.jsonl', line 2: " in err
    assert said in err
