"""`lookback evaluate` and `lookback benchmarks`, as a shell sees them."""

import json

import pytest
from chat_server import completion, raw, serve, status
from shared_data import shared

from lookback.benchmarks import BENCHMARKS, get_benchmark
from lookback.benchmarks.evaluate import BadResponses, evaluate, list_benchmarks
from lookback.benchmarks.language_model_judge import LanguageModelJudge


@pytest.fixture(autouse=True)
def no_environment(monkeypatch, tmp_path):
    for name in ("OPENAI_BASE_URL", "OPENAI_API_KEY", "LOOKBACK_JUDGE_MODEL", "LOOKBACK_DATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("LOOKBACK_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def run(command):
    return command


@pytest.fixture
def vqav2(tmp_path):
    """Three questions, all of whose people say yes."""
    folder = tmp_path / "data" / "vqav2"
    folder.mkdir(parents=True)
    questions = [{"question_id": n, "image_id": n, "question": "Is it?"} for n in (1, 2, 3)]
    people = [{"answer": "yes"}] * 10
    annotations = [{"question_id": n, "image_id": n, "answers": people} for n in (1, 2, 3)]
    (folder / "questions.json").write_text(json.dumps({"questions": questions}))
    (folder / "annotations.json").write_text(json.dumps({"annotations": annotations}))
    return folder


@pytest.fixture
def write(tmp_path):
    def write(*pairs):
        path = tmp_path / "responses.jsonl"
        lines = [json.dumps({"id": name, "response": response}) for name, response in pairs]
        path.write_text("\n".join(lines))
        return path

    return write


def test_json_has_the_benchmark_the_number_of_items_and_the_metrics(run, vqav2, write):
    path = write((1, "Yes."), ("2", "no"), (3, "yes"))
    code, out, err = run("evaluate", "vqav2", "--data", vqav2, "--responses", path, "--json")
    assert (code, err) == (0, "")
    assert json.loads(out) == {
        "benchmark": "vqav2",
        "items": 3,
        "split": "all",
        "metrics": pytest.approx(
            {
                "accuracy": 200 / 3,
                "accuracy_official": 200 / 3,
                "accuracy_script": 100 / 3,  # "Yes." where all say "yes"
                "accuracy_official_other": 200 / 3,
            }
        ),
    }


def test_people_get_a_table(run, vqav2, write):
    code, out, _ = run("evaluate", "vqav2", "--data", vqav2, "--responses", write((1, "yes")))
    assert code == 0
    assert [line.split() for line in out.splitlines()[:3]] == [
        ["vqav2", "value"],
        ["accuracy", "100.00"],
        ["accuracy_official", "100.00"],
    ]
    assert "1 items; 2 have no response" in out


def test_the_environment_names_the_data(run, vqav2, write, monkeypatch):
    monkeypatch.setenv("LOOKBACK_DATA", str(vqav2.parent))
    code, out, _ = run("evaluate", "vqav2", "--responses", write((1, "yes")), "--json")
    assert (code, json.loads(out)["missing"]) == (0, 2)


def test_problems_are_reported_with_their_lines_and_strict_makes_them_an_error(run, vqav2, write):
    path = write((1, "yes"), (1, "no"), (9, "yes"))
    arguments = ("evaluate", "vqav2", "--data", vqav2, "--responses", path)
    code, out, err = run(*arguments, "--json")
    data = json.loads(out)
    assert (code, data["items"], data["missing"]) == (0, 1, 2)
    assert [problem["line"] for problem in data["problems"]] == [2, 3, None]
    messages = [problem["message"] for problem in data["problems"]]
    assert "duplicate id '1': line 1 has it already" in messages
    assert "unknown id '9': not among vqav2's split 'all'" in messages
    assert [line.split(":")[1].strip() for line in err.splitlines()] == [
        "line 2",
        "line 3",
        "missing ids",
    ]
    code, out, err = run(*arguments, "--json", "--strict")
    assert (code, out) == (1, "")
    assert err.splitlines()[-1].startswith("lookback: 3 problems in ")
    assert "line 2: duplicate id '1'" in err


def test_many_problems_are_not_all_printed(run, vqav2, write):
    path = write((1, "yes"), *[(n, "yes") for n in range(100, 150)])
    arguments = ("evaluate", "vqav2", "--data", vqav2, "--responses", path, "--json")
    _, out, err = run(*arguments, "--no-strict")
    assert len(json.loads(out)["problems"]) == 51
    assert len(err.splitlines()) == 21
    assert "and 31 more problems" in err


def test_responses_to_other_items_are_an_error_unless_half_of_them_match(run, vqav2, write):
    """Numbers over 1 of 4 responses say nothing about the others."""
    path = write((1, "yes"), (8, "yes"), (9, "yes"))
    arguments = ("evaluate", "vqav2", "--data", vqav2, "--responses", path)
    code, out, err = run(*arguments)
    assert (code, out) == (1, "")
    last = err.splitlines()[-1]
    assert "only 1 of 3 responses are to items of vqav2's split 'all'" in last
    assert last.endswith("or score them alone with --no-strict")
    code, out, _ = run(*arguments, "--no-strict")
    assert code == 0
    assert out.startswith("only 1 of 3 responses are to items of vqav2's split 'all'\n")
    code, out, _ = run(*arguments, "--no-strict", "--json")
    assert out.startswith('{"headline": "only 1 of 3 responses are to items of ')
    with pytest.raises(BadResponses, match="only 1 of 3 responses"):
        evaluate("vqav2", path, vqav2)


def test_where_half_of_the_responses_match_the_numbers_say_of_how_many_they_are(run, vqav2, write):
    path = write((1, "yes"), (9, "yes"))
    code, out, _ = run("evaluate", "vqav2", "--data", vqav2, "--responses", path)
    assert code == 0
    assert out.startswith("only 1 of 2 responses are to items of vqav2's split 'all'\n")
    path = write((1, "yes"), (1, "no"), (1, "no"))  # repeated, but to an item
    code, out, _ = run("evaluate", "vqav2", "--data", vqav2, "--responses", path)
    assert (code, out.splitlines()[0].split()) == (0, ["vqav2", "value"])


def test_lines_that_cannot_be_read_are_no_matches(run, vqav2, write):
    path = write((1, "yes"))
    path.write_text(path.read_text() + "\n{}\nnonsense\n\n\n")
    code, _, err = run("evaluate", "vqav2", "--data", vqav2, "--responses", path)
    assert code == 1
    assert "only 1 of 3 responses" in err


def test_half_a_character_costs_its_line_and_nothing_else(run, vqav2, write):
    path = write((1, "yes"), (2, "yes \ud83d"), (3, "yes"))
    arguments = ("evaluate", "vqav2", "--data", vqav2, "--responses", path, "--json")
    code, out, err = run(*arguments)
    data = json.loads(out)
    assert (code, data["items"], data["missing"]) == (0, 2, 1)
    (problem, *_) = data["problems"]
    assert problem["line"] == 2
    assert "\\ud83d" in problem["message"]
    assert f"lookback: line 2: {problem['message']}\n" in err


def test_json_nested_without_end_is_a_problem_of_its_line(run, vqav2, write):
    path = write((1, "yes"))
    path.write_text(path.read_text() + "\n" + '{"id":' + "[" * 100_000 + "\n")
    code, out, err = run("evaluate", "vqav2", "--data", vqav2, "--responses", path, "--json")
    assert (code, json.loads(out)["problems"][0]["line"]) == (0, 2)
    assert "lookback: line 2: not JSON: " in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("vqa",), "no benchmark named 'vqa'; there are: vqav2, chair, hallusionbench, amber, "),
        (("hallusionbench",), "no file HallusionBench.json for hallusionbench in "),
        (("vqav2", "--split", "val"), "no split named 'val'"),
        (("vqav2", "--judge-url", "http://x", "--judge-model", "m"), "vqav2 has no setting judge"),
        (("vqav2", "--synonyms", "s.txt"), "vqav2 has no setting synonyms"),
        (("hallusionbench", "--judge-url", "http://x"), "no model: name one with --judge-model"),
        (("hallusionbench", "--judge-prompt", "brief"), "a judge's prompt is given but no model"),
    ],
)
def test_failures_are_one_line_and_status_one(run, vqav2, write, arguments, message):
    options = ("--data", vqav2, "--responses", write((1, "yes")))
    code, out, err = run("evaluate", *arguments, *options)
    assert (code, out) == (1, "")
    assert message in err
    assert err.count("\n") == 1


def test_missing_files_and_useless_responses_are_named(run, vqav2, write, tmp_path):
    gone = tmp_path / "gone.jsonl"
    code, _, err = run("evaluate", "vqav2", "--data", vqav2, "--responses", gone)
    assert (code, err) == (1, f"lookback: no file of responses {str(gone)!r}\n")
    code, _, err = run("evaluate", "vqav2", "--responses", write((1, "yes")))
    assert code == 1
    assert "--data DIR or LOOKBACK_DATA" in err
    assert "visualqa.org" in err
    code, _, err = run("evaluate", "vqav2", "--data", vqav2, "--responses", write((8, "yes")))
    assert code == 1
    assert "is to an item of vqav2's split 'all'" in err


def test_generated_benchmarks_need_no_data(run, tmp_path):
    items = get_benchmark("scenes-pairs").items(limit=8)
    path = tmp_path / "scenes.jsonl"
    lines = [json.dumps({"id": i.id, "response": i.truth["answer"]}) for i in items]
    path.write_text("\n".join(lines))
    code, out, err = run("evaluate", "scenes-pairs", "--responses", path, "--json")
    data = json.loads(out)
    assert (code, data["items"], data["missing"]) == (0, 8, 992)
    assert data["metrics"] == {"correctness": 100, "aAcc": 100, "fAcc": 100, "qAcc": 100}
    assert "992 of 1000 items have no response" in err


@pytest.fixture
def hallusionbench(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir(exist_ok=True)
    row = dict.fromkeys(("category", "subcategory", "visual_input", "set_id", "figure_id"), "1")
    row |= {"category": "VD", "question": "Is it?", "gt_answer_details": "It is.", "filename": "a"}
    rows = [row | {"question_id": str(n), "gt_answer": str(n % 2)} for n in range(4)]
    (folder / "HallusionBench.json").write_text(json.dumps(rows))
    return folder


def test_the_judge_is_named_and_its_endpoint_may_come_from_flags(run, hallusionbench, write):
    path = write(*[(n, f"Yes, {n}.") for n in range(4)])
    arguments = ("evaluate", "hallusionbench", "--data", hallusionbench, "--responses", path)
    code, out, _ = run(*arguments, "--json")
    data = json.loads(out)
    assert (code, data["judge"], data["metrics"]["correctness"]) == (0, "rules", 50)
    assert "rules" in data["notes"][0]
    with serve(lambda *_: "correct") as (url, endpoint):
        for _ in range(2):
            flags = ("--judge-url", url, "--judge-model", "m", "--judge-key", "k")
            code, out, _ = run(*arguments, *flags, "--json")
            data = json.loads(out)
            named = "m (official prompt)"
            assert (code, data["judge"], data["metrics"]["correctness"]) == (0, named, 100)
            assert "notes" not in data
        assert len(endpoint.requests) == 4
        code, out, _ = run(*arguments, *flags, "--judge-prompt", "brief", "--json")
        assert (code, json.loads(out)["judge"]) == (0, "m (brief prompt)")
        assert len(endpoint.requests) == 8  # verdicts on the other prompt are not taken
        assert "You grade an answer" in endpoint.prompts[-1]
        assert endpoint.requests[0]["key"] == "Bearer k"


def test_the_judge_s_endpoint_may_come_from_the_environment(
    run, hallusionbench, write, monkeypatch, tmp_path
):
    path = write((0, "Yes."))
    with serve(lambda *_: "unclear") as (url, endpoint):
        monkeypatch.setenv("OPENAI_BASE_URL", url)
        monkeypatch.setenv("OPENAI_API_KEY", "from-env")
        monkeypatch.setenv("LOOKBACK_JUDGE_MODEL", "env-model")
        arguments = ("evaluate", "hallusionbench", "--data", hallusionbench, "--responses", path)
        code, out, _ = run(*arguments)
        assert code == 0
        assert "judge: env-model" in out
        assert endpoint.requests[0]["key"] == "Bearer from-env"
    assert (tmp_path / "cache" / "judge.jsonl").exists()


def test_in_strict_mode_nothing_is_asked_of_a_judge(run, hallusionbench, write):
    path = write((0, "Yes."))
    with serve(lambda *_: "correct") as (url, endpoint):
        code, _, err = run(
            *("evaluate", "hallusionbench", "--data", hallusionbench, "--responses", path),
            *("--judge-url", url, "--judge-model", "m", "--strict"),
        )
        assert (code, endpoint.requests) == (1, [])
    assert "3 of 4 items have no response" in err


def test_a_judge_that_fails_is_one_line(run, hallusionbench, write, monkeypatch):
    monkeypatch.setattr(LanguageModelJudge, "_wait", lambda *_: 0.0)
    path = write(*[(n, f"Yes, {n}.") for n in range(4)])
    with serve(lambda *_: status(500)) as (url, _):
        code, out, err = run(
            *("evaluate", "hallusionbench", "--data", hallusionbench, "--responses", path),
            *("--judge-url", url, "--judge-model", "m"),
        )
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert f"lookback: the judge 'm' at {url}/ gave no answer in 6 attempts" in err


def test_a_reply_that_is_no_text_fails_its_line_alone(run, hallusionbench, write):
    path = write(*[(n, f"Yes, {n}.") for n in range(4)])
    half = raw(json.dumps(completion("correct \ud83d")).encode())
    with serve(lambda _, text: half if "Yes, 2." in text else "correct") as (url, _):
        arguments = ("evaluate", "hallusionbench", "--data", hallusionbench, "--responses", path)
        arguments += ("--judge-url", url, "--judge-model", "m", "--json")
        code, out, err = run(*arguments)
        strict = run(*arguments, "--strict")
    data = json.loads(out)
    assert (code, data["items"], data["metrics"]["correctness"]) == (0, 4, 75)
    message = "not judged: the judge's reply has half a character, '\\ud83d'"
    assert data["problems"] == [{"line": 3, "message": message}]
    assert err == f"lookback: line 3: {message}\n"
    assert strict[:2] == (1, "")


def test_the_key_is_not_in_what_a_failing_judge_makes_the_command_say(
    run, hallusionbench, write, monkeypatch
):
    monkeypatch.setenv("LOOKBACK_TRACEBACK", "1")
    path = write(*[(n, f"Yes, {n}.") for n in range(4)])

    def echo(handler):
        handler.reply(403, {"error": {"message": f"{handler.headers['Authorization']} is bad"}})

    with serve(lambda *_: echo) as (url, _):
        code, out, err = run(
            *("evaluate", "hallusionbench", "--data", hallusionbench, "--responses", path),
            *("--judge-url", url, "--judge-model", "m", "--judge-key", "my-secret"),
        )
    assert (code, out) == (1, "")
    assert "Traceback" in err
    assert "Bearer *** is bad" in err
    assert "my-secret" not in err


def test_benchmarks_are_listed_with_their_source_and_whether_they_are_found(run, vqav2):
    code, out, _ = run("benchmarks", "--data", vqav2.parent, "--json")
    assert code == 0
    listed = {b["name"]: b for b in json.loads(out)}
    assert list(listed) == BENCHMARKS.names()
    assert (listed["vqav2"]["found"], listed["vqav2"]["where"]) == (True, str(vqav2))
    assert not listed["hallusionbench"]["found"]
    assert "HallusionBench.json" in listed["hallusionbench"]["where"]
    assert "cocodataset" in listed["chair"]["source"]
    assert "AMBER" in listed["amber"]["source"]
    assert listed["scenes-vqa"] == {
        "name": "scenes-vqa",
        "primary": "accuracy",
        "source": "generated by LookBack; needs no files",
        "files": [],
        "found": True,
        "where": "",
    }


@pytest.mark.parametrize("width", [60, 120])
def test_benchmarks_are_a_table(run, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    code, out, err = run("benchmarks")
    assert (code, err.count("\n")) == (0, 1)
    assert "LOOKBACK_DATA" in err
    lines = out.splitlines()
    names = [line.split()[0] for line in lines[1 : lines.index("")]]
    assert names == BENCHMARKS.names()
    assert sum("not found" in line for line in lines) == 4
    assert max(map(len, lines)) <= width
    assert "instances_val2014.json" in out


def test_python_gets_the_same(vqav2, write):
    result = evaluate("vqav2", write((1, "yes")), vqav2)
    assert (result.items, result.missing, result.metrics["accuracy"]) == (1, 2, 100)
    assert evaluate(get_benchmark("vqav2", vqav2), write((1, "yes"))).to_dict() == result.to_dict()
    with pytest.raises(BadResponses) as error:
        evaluate("vqav2", write((1, "yes")), vqav2, strict=True)
    assert len(error.value.problems) == 1


def test_all_real_files_are_found():
    root = shared("vqav2").parent
    assert all(listed.found for listed in list_benchmarks(root))
