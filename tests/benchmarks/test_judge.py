"""Judges: what yes and no are, and a language model behind an endpoint that misbehaves."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from itertools import pairwise
from pathlib import Path

import pytest
from chat_server import after, raw, serve, status

from lookback.benchmarks.judge import Case, RuleJudge, get_judge
from lookback.benchmarks.language_model_judge import (
    JudgeError,
    LanguageModelJudge,
    parse_verdict,
    prompt,
)
from lookback.benchmarks.reply_cache import ReplyCache, content_key, default_cache
from lookback.benchmarks.yes_no import yes_or_no


@pytest.fixture(autouse=True)
def no_environment(monkeypatch, tmp_path):
    for name in ("OPENAI_BASE_URL", "OPENAI_API_KEY", "LOOKBACK_JUDGE_MODEL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("LOOKBACK_CACHE", str(tmp_path / "cache"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Yes", "yes"),
        ("yes.", "yes"),
        ("No, the left one is larger.", "no"),
        ("No the circles are of one size.", "no"),
        ("**Yes**, it is.", "yes"),
        ("The answer is no.", "no"),
        ("Answer: Yes", "yes"),
        ("Looking at the chart, the answer is yes.", "yes"),
        ("According to the image, yes.", "yes"),
        ("Yes, there is no dog.", "yes"),
        ("No dogs are in the picture.", None),  # a determiner
        ("There is no dog.", None),
        ("The circles are of the same size.", None),
        ("I said yes, then no.", None),
        ("", None),
        ("I cannot tell from the image, but yes.", "unsure"),
        ("I'm not sure.", "unsure"),
        ("It is impossible to say", "unsure"),
        ("Yes and no.", "unsure"),
        ("Yes, although the rest is unclear.", "yes"),  # it has answered before
        ("I don’t know", "unsure"),
    ],
)
def test_yes_and_no(text, said):
    assert yes_or_no(text) == said


def case(prediction="Yes, it is.", answer="yes", question="Is it?", details="It is."):
    return Case(question, details, answer, prediction)


def test_rules_compare_a_clear_answer_with_the_reference():
    responses = ["Yes.", "No.", "I cannot tell.", "The circle is red."]
    judge = RuleJudge()
    assert judge.verdicts([case(r) for r in responses]) == [
        "correct",
        "incorrect",
        "unclear",
        "unparsable",
    ]
    assert judge.verdicts([case(r, "no") for r in responses[:2]]) == ["incorrect", "correct"]
    assert judge.name == "rules"
    assert "language model" in judge.notes[0]


@pytest.mark.parametrize(
    ("reply", "verdict"),
    [
        ("correct", "correct"),
        ("Correct.", "correct"),
        ("**Incorrect**", "incorrect"),
        ("unclear", "unclear"),
        ("The prediction is correct.", "correct"),
        ("This is not correct.", "incorrect"),
        ("Incorrect: the correct answer is no.", "incorrect"),
        ("Correct, though the wording is unclear.", "correct"),
        ("It could be correct or incorrect.", "unparsable"),
        ('{"verdict": "incorrect"}', "incorrect"),
        ("<think>Maybe incorrect?</think>\ncorrect", "correct"),
        ("blue", "unparsable"),
        ("incorrectly worded", "unparsable"),
        ("", "unparsable"),
    ],
)
def test_verdicts_are_read_from_replies(reply, verdict):
    assert parse_verdict(reply) == verdict


@pytest.fixture
def judge_at(tmp_path):
    def judge_at(url, **options):
        options = {"cache": tmp_path / "judge.jsonl", "pause": 0.01, "timeout": 5.0} | options
        return LanguageModelJudge("the-model", url=url, key="secret", **options)

    return judge_at


def test_the_prompt_has_all_that_the_judge_needs_and_the_cache_saves_a_second_time(judge_at):
    cases = [case("Yes, {it} is."), case("No.", question="Is it red?", details="It is red.")]
    with serve(lambda _, text: "incorrect" if "No." in text else "Correct") as (url, endpoint):
        assert judge_at(url).verdicts(cases) == ["correct", "incorrect"]
        assert len(endpoint.requests) == 2
        assert judge_at(url).verdicts(cases * 2) == ["correct", "incorrect"] * 2
        assert len(endpoint.requests) == 2
        request = endpoint.requests[0]
    assert (request["model"], request["key"]) == ("the-model", "Bearer secret")
    assert (request["temperature"], request["path"]) == (0, "/v1/chat/completions")
    for text in ("Question: Is it?", "Reference answer: It is.", "Yes, {it} is.", "unclear"):
        assert any(text in p for p in endpoint.prompts)


def test_the_same_response_is_asked_once(judge_at):
    with serve(lambda *_: "correct") as (url, endpoint):
        assert judge_at(url).verdicts([case()] * 9) == ["correct"] * 9
        assert len(endpoint.requests) == 1
        assert judge_at(url).verdicts([]) == []


FAILURES = {
    "429": status(429),
    "429 with a time": status(429, Retry_After="0.02"),
    "500": status(500),
    "503": status(503),
    "slow": after(0.6, "correct"),
    "half a reply": raw(b'{"choices": [{"mess', length=400),
    "half of the JSON": raw(b'{"choices": [{"mess'),
    "nonsense": raw(b"<html>Bad gateway</html>", "text/html"),
    "nonsense as JSON": raw(b'"hello"'),
    "no choices": raw(b'{"choices": []}'),
    "empty": raw(b'{"choices": [{"message": {"role": "assistant", "content": ""}}]}'),
    "null": raw(b'{"choices": [{"message": {"role": "assistant", "content": null}}]}'),
}


@pytest.mark.parametrize("failure", FAILURES.values(), ids=FAILURES)
def test_a_failing_endpoint_is_asked_again(judge_at, failure):
    with serve(lambda number, _: failure if number < 3 else "correct") as (url, endpoint):
        judge = judge_at(url, timeout=0.3 if failure is FAILURES["slow"] else 5.0)
        assert judge.verdicts([case()]) == ["correct"]
        assert len(endpoint.requests) == 3


def test_pauses_grow_and_an_endpoint_s_own_time_is_heard(judge_at):
    times = []

    def behave(number, _):
        times.append(time.monotonic())
        answers = {1: status(429), 2: status(500), 3: status(429, Retry_After="0.5")}
        return answers.get(number, "correct")

    with serve(behave) as (url, _):
        assert judge_at(url, pause=0.05).verdicts([case()]) == ["correct"]
    pauses = [later - sooner for sooner, later in pairwise(times)]
    assert pauses[0] >= 0.05 * 0.75
    assert pauses[1] >= 0.1 * 0.75
    assert pauses[2] >= 0.5


def test_what_never_works_is_an_error_that_names_it_and_loses_nothing(judge_at, tmp_path):
    cases = [case(f"Answer {n}.") for n in range(6)]

    def behave(_, text):
        return status(500, "out of order") if "Answer 5." in text else "correct"

    with serve(behave) as (url, endpoint):
        with pytest.raises(JudgeError) as error:
            judge_at(url, workers=1, attempts=3).verdicts(cases)
        for part in ("'the-model'", url, "3 attempts", "out of order", "judge.jsonl", "run again"):
            assert part in str(error.value)
        assert len(endpoint.requests) == 5 + 3
        assert len(ReplyCache(tmp_path / "judge.jsonl")) == 5
        endpoint.behave = lambda *_: "correct"
        assert judge_at(url).verdicts(cases) == ["correct"] * 6
        assert len(endpoint.requests) == 5 + 3 + 1


@pytest.mark.parametrize("code", [400, 401, 403, 404])
def test_a_refusal_is_not_repeated(judge_at, code):
    with serve(lambda *_: status(code, "bad key")) as (url, endpoint):
        with pytest.raises(JudgeError, match=r"'the-model' at .* refused: .*bad key"):
            judge_at(url, workers=1).verdicts([case(str(n)) for n in range(50)])
        assert len(endpoint.requests) < 5


def test_a_model_without_a_temperature_is_asked_without(judge_at):
    together = threading.Barrier(4, timeout=5)

    def behave(number, _):
        if "temperature" in endpoint.requests[number - 1]:
            together.wait()  # all four are refused at once
            return status(400, "Unsupported value: 'temperature'")
        return "correct"

    with serve(behave) as (url, endpoint):
        judge = judge_at(url, workers=4)
        assert judge.verdicts([case(str(n)) for n in range(12)]) == ["correct"] * 12
        assert sum("temperature" in request for request in endpoint.requests) <= 4


def test_nobody_to_ask_is_an_error(judge_at):
    with serve(lambda *_: "correct") as (url, _):
        pass  # closed again
    with pytest.raises(JudgeError, match="gave no answer in 2 attempts"):
        judge_at(url, attempts=2).verdicts([case()])


def test_many_are_asked_at_once_and_verdicts_keep_their_order(judge_at):
    together = threading.Barrier(4, timeout=5)
    done = []

    def behave(number, text):
        if number <= 4:
            together.wait()  # breaks unless four requests are under way at once
        return "correct" if "even" in text else "incorrect"

    cases = [case(f"{n} {'odd' if n % 2 else 'even'}") for n in range(40)]
    with serve(behave) as (url, endpoint):
        judge = judge_at(url, workers=4, progress=lambda *numbers: done.append(numbers))
        assert judge.verdicts(cases) == ["correct", "incorrect"] * 20
        assert endpoint.most_at_once == 4
    assert done == [(n, 40) for n in range(1, 41)]


def test_nonsense_in_good_form_is_unparsable_and_not_asked_again(judge_at):
    with serve(lambda *_: "What a lovely day!") as (url, endpoint):
        for _ in range(2):
            assert judge_at(url).verdicts([case()]) == ["unparsable"]
        assert len(endpoint.requests) == 1


def test_the_key_is_the_content():
    same = content_key("m", prompt(case()))
    assert content_key("m", prompt(case())) == same
    others = {
        content_key("n", prompt(case())),
        content_key("m", prompt(case("No."))),
        content_key("m", prompt(case(question="Is it not?"))),
        content_key("m", prompt(case(details="It is not."))),
    }
    assert len(others | {same}) == 5


def test_a_torn_line_costs_only_itself(tmp_path):
    path = tmp_path / "folder" / "judge.jsonl"
    cache = ReplyCache(path)
    for n in range(3):
        cache.add(str(n), "m", f"réply\n{n}")
    torn = path.read_bytes()[:-9]
    path.write_bytes(torn + b"\xff")
    again = ReplyCache(path)
    assert (len(again), again.get("1"), again.get("2")) == (2, "réply\n1", None)
    again.add("2", "m", "new")
    assert ReplyCache(path).get("2") == "new"
    lines = path.read_bytes().splitlines()
    assert len(lines) == 4
    assert json.loads(lines[-1])["model"] == "m"
    path.write_text('[]\n"x"\n{"key": 1}\n')
    assert len(ReplyCache(path)) == 0


def test_a_kill_loses_no_reply(judge_at, tmp_path):
    script = """if True:
        import sys
        from lookback.benchmarks.judge import Case
        from lookback.benchmarks.language_model_judge import LanguageModelJudge
        judge = LanguageModelJudge("the-model", url=sys.argv[1], cache=sys.argv[2], workers=2)
        judge.verdicts([Case("Is it?", "It is.", "yes", str(n)) for n in range(30)])
    """
    answered = threading.Event()
    held = threading.Event()

    def behave(number, _):
        if number > 10:  # the first ten get their reply, the next wait until the asker is dead
            answered.set()
            held.wait(10)
        return "correct"

    path = tmp_path / "judge.jsonl"
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    with serve(behave) as (url, endpoint):
        process = subprocess.Popen([sys.executable, "-c", script, url, path], env=environment)
        try:
            assert answered.wait(60)
            while len(endpoint.requests) < 12:  # both workers hang: ten replies were taken
                time.sleep(0.01)
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()
            held.set()
        assert len(ReplyCache(path)) == 10
        endpoint.requests.clear()
        endpoint.behave = lambda *_: "correct"
        cases = [case(str(n)) for n in range(30)]
        assert judge_at(url).verdicts(cases) == ["correct"] * 30
        assert len(endpoint.requests) == 20


def test_the_environment_or_arguments_choose_the_judge(monkeypatch, tmp_path):
    assert get_judge().name == "rules"
    monkeypatch.setenv("OPENAI_API_KEY", "key")
    assert get_judge().name == "rules"  # money is spent only on a model that is named
    judge = get_judge("gpt")
    assert (judge.name, judge._client.api_key) == ("gpt", "key")
    monkeypatch.setenv("LOOKBACK_JUDGE_MODEL", "llama")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    judge = get_judge()
    assert (judge.name, str(judge._client.base_url)) == ("llama", "http://127.0.0.1:9/v1/")
    assert judge.cache.path == default_cache() == tmp_path / "cache" / "judge.jsonl"
    judge = get_judge("mine", "http://127.0.0.1:8/v1", "k", tmp_path / "x.jsonl")
    assert (judge.name, judge._client.api_key) == ("mine", "k")
    assert str(judge._client.base_url) == "http://127.0.0.1:8/v1/"
    assert judge.cache.path == tmp_path / "x.jsonl"


def test_half_a_judge_is_refused(monkeypatch):
    with pytest.raises(ValueError, match="no model: name one with --judge-model or LOOKBACK_JUDGE"):
        get_judge(url="http://127.0.0.1:9/v1")
    with pytest.raises(ValueError, match="'gpt' has neither a URL nor a key"):
        get_judge("gpt")
    monkeypatch.setitem(sys.modules, "openai", None)
    with pytest.raises(ImportError, match=r"pip install 'lookback-vlm\[judge\]'"):
        get_judge("gpt", key="k")
