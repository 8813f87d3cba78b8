"""Judges: what yes and no are, and a language model behind an endpoint that misbehaves."""

import asyncio
import base64
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import traceback
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import quote

import pytest
from chat_server import begin, completion, raw, serve, status
from timeouts import HANG_SECONDS, wait_until

from lookback.benchmarks import language_model_judge
from lookback.benchmarks.answers import yes_or_no
from lookback.benchmarks.judge import PROMPTS, Case, Endpoint, RuleJudge, fill_prompt, get_judge
from lookback.benchmarks.language_model_judge import (
    JudgeError,
    LanguageModelJudge,
    ReplyCache,
    content_key,
    default_cache,
    parse_verdict,
)


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
        options = {
            "cache": tmp_path / "judge.jsonl",
            "pause": 0.01,
            "timeout": HANG_SECONDS,
        } | options
        return LanguageModelJudge("the-model", url=url, key="secret", **options)

    return judge_at


class Clock:
    """The judge's clock: pauses take no time, and that of an attempt is over when the test says so.

    Attributes:
        pauses: their seconds.
        limits: seconds that each attempt may take.
    """

    def __init__(self):
        self.pauses, self.limits, self._attempt = [], [], None

    async def sleep(self, seconds):
        self.pauses.append(seconds)

    def timeout(self, seconds):
        self.limits.append(seconds)
        self._attempt = asyncio.timeout(None)
        self._loop = asyncio.get_running_loop()
        return self._attempt

    def run_out(self):
        self._loop.call_soon_threadsafe(self._attempt.reschedule, self._loop.time())


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    parts = vars(asyncio) | {"sleep": made.sleep, "timeout": made.timeout}
    monkeypatch.setattr(language_model_judge, "asyncio", SimpleNamespace(**parts))
    return made


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


def test_the_official_prompt_asks_for_conflicts_and_the_brief_one_for_agreement():
    """What tells the two apart: a response that says something else, but nothing against it."""
    official, brief = (fill_prompt(case("{x}"), name) for name in PROMPTS)
    assert 'does not conflict with the reference answer, reply "correct"' in official
    assert "agrees with the reference answer" in brief
    for text in (official, brief):
        assert "Question: Is it?\nReference answer: It is.\n" in text
        assert all(word in text for word in ("{x}", "correct", "incorrect", "unclear"))


def test_a_verdict_belongs_to_its_prompt(judge_at):
    def behave(_, text):
        return "correct" if "conflict" in text else "incorrect"

    with serve(behave) as (url, endpoint):
        for _ in range(2):
            assert judge_at(url).verdicts([case()]) == ["correct"]
            assert judge_at(url, prompt="brief").verdicts([case()]) == ["incorrect"]
        assert len(endpoint.requests) == 2  # each once, and neither taken for the other
        assert {request["model"] for request in endpoint.requests} == {"the-model"}


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
        assert judge_at(url).verdicts([case()]) == ["correct"]
        assert len(endpoint.requests) == 3


def test_a_slow_endpoint_is_asked_again(judge_at, clock):
    slow = begin("correct", "nothing", then=clock.run_out)
    with serve(lambda number, _: slow if number < 3 else "correct") as (url, endpoint):
        assert judge_at(url, timeout=70.0).verdicts([case()]) == ["correct"]
        assert len(endpoint.requests) == 3
    assert clock.limits == [70.0] * 3


def test_pauses_grow_and_an_endpoint_s_own_time_is_heard(judge_at, clock):
    def behave(number, _):
        answers = {1: status(429), 2: status(500), 3: status(429, Retry_After="500.5")}
        answers |= {4: status(429, Retry_After="50.5"), 5: status(429, Retry_After="0.5")}
        return answers.get(number, "correct")

    with serve(behave) as (url, _):
        assert judge_at(url, pause=1.0).verdicts([case()]) == ["correct"]
    assert clock.pauses == pytest.approx([1, 2, 60, 50.5, 16], rel=0.25)
    assert clock.pauses[2:4] == [60, 50.5]


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
    together = threading.Barrier(4, timeout=HANG_SECONDS)

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
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))  # and kept, so that nobody else listens there
        url = f"http://127.0.0.1:{free.getsockname()[1]}/v1"
        with pytest.raises(JudgeError, match="gave no answer in 2 attempts"):
            judge_at(url, attempts=2).verdicts([case()])


def test_many_are_asked_at_once_and_verdicts_keep_their_order(judge_at):
    together = threading.Barrier(4, timeout=HANG_SECONDS)
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
    same = content_key("e", "m", fill_prompt(case()))
    assert content_key("e", "m", fill_prompt(case())) == same
    others = {
        content_key("f", "m", fill_prompt(case())),
        content_key("e", "n", fill_prompt(case())),
        content_key("e", "m", fill_prompt(case("No."))),
        content_key("e", "m", fill_prompt(case(question="Is it not?"))),
        content_key("e", "m", fill_prompt(case(details="It is not."))),
        content_key("e", "m", fill_prompt(case(), "brief")),
    }
    assert len(others | {same}) == 7


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
    lines = [line for line in path.read_bytes().splitlines() if line]
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
    held = threading.Event()

    def behave(number, _):
        if number > 10:  # the first ten get their reply, the next wait until the asker is dead
            held.wait()
        return "correct"

    path = tmp_path / "judge.jsonl"
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    with serve(behave) as (url, endpoint):
        process = subprocess.Popen([sys.executable, "-c", script, url, path], env=environment)
        try:
            # Both workers hang: ten replies were taken.
            wait_until(lambda: len(endpoint.requests) == 12)
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
    assert (judge.name, judge.endpoint.key) == ("gpt (official prompt)", "key")
    assert get_judge("gpt", prompt="brief").name == "gpt (brief prompt)"
    monkeypatch.setenv("LOOKBACK_JUDGE_MODEL", "llama")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    judge = get_judge()
    assert (judge.model, judge.endpoint.shown) == ("llama", "http://127.0.0.1:9/v1/")
    assert judge.cache.path == default_cache() == tmp_path / "cache" / "judge.jsonl"
    judge = get_judge("mine", "http://127.0.0.1:8/v1", "k", tmp_path / "x.jsonl")
    assert (judge.model, judge.endpoint.key) == ("mine", "k")
    assert judge.endpoint.shown == "http://127.0.0.1:8/v1/"
    assert judge.cache.path == tmp_path / "x.jsonl"


@pytest.mark.parametrize("given", [{"url": "http://127.0.0.1:9/v1"}, {"key": "k"}, {"cache": "c"}])
def test_a_judge_without_a_model_is_refused(given):
    with pytest.raises(ValueError, match="no model: name one with --judge-model or LOOKBACK_JUDGE"):
        get_judge(**given)


def test_a_prompt_needs_a_model_and_is_one_there_is():
    with pytest.raises(ValueError, match="a judge's prompt is given but no model: name one with"):
        get_judge(prompt="brief")
    with pytest.raises(ValueError, match="no judge's prompt named 'long'; there are: official, br"):
        get_judge("gpt", key="k", prompt="long")


def test_half_a_judge_is_refused(monkeypatch):
    with pytest.raises(ValueError, match="'gpt' has neither a URL nor a key"):
        get_judge("gpt")
    monkeypatch.setitem(sys.modules, "openai", None)
    with pytest.raises(ImportError, match=r"pip install 'lookback-vlm\[judge\]'"):
        get_judge("gpt", key="k")


@pytest.mark.parametrize("part", ["head", "body"])
def test_a_reply_that_never_ends_is_no_reply(judge_at, clock, part):
    """The time is that of the whole, however much of it is there."""
    with serve(lambda *_: begin("correct", part, then=clock.run_out)) as (url, endpoint):
        with pytest.raises(JudgeError, match=r"2 attempts, the last: no whole reply in 70\.5 sec"):
            judge_at(url, attempts=2, timeout=70.5).verdicts([case()])
        assert len(endpoint.requests) == 2


def test_an_interruption_ends_at_once_while_the_endpoint_hangs(tmp_path):
    script = """if True:
        import sys
        from lookback.benchmarks.judge import Case
        from lookback.benchmarks.language_model_judge import LanguageModelJudge
        judge = LanguageModelJudge("the-model", url=sys.argv[1], cache=sys.argv[2], timeout=1e4)
        try:
            judge.verdicts([Case("Is it?", "It is.", "yes", str(n)) for n in range(30)])
        except KeyboardInterrupt:
            sys.exit(130)
    """
    asked, held = threading.Event(), threading.Event()

    def behave(*_):
        asked.set()
        held.wait()
        return "correct"

    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    with serve(behave) as (url, _):
        command = [sys.executable, "-c", script, url, tmp_path / "judge.jsonl"]
        process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE)
        try:
            assert asked.wait(HANG_SECONDS)
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(
                timeout=HANG_SECONDS
            )  # far less than it would wait for replies
        finally:
            process.kill()
            held.set()
    assert (process.returncode, said) == (130, b"")


def test_a_judge_works_where_a_loop_runs_already(judge_at):
    """As in a notebook."""

    async def ask(url):
        return judge_at(url).verdicts([case()])

    with serve(lambda *_: "correct") as (url, _):
        assert asyncio.run(ask(url)) == ["correct"]


def test_replies_of_another_endpoint_are_not_taken(judge_at):
    with serve(lambda *_: "correct") as (one, _), serve(lambda *_: "incorrect") as (two, endpoint):
        assert judge_at(one).verdicts([case()]) == ["correct"]
        assert judge_at(two).verdicts([case()]) == ["incorrect"]
        assert judge_at(one + "/").verdicts([case()]) == ["correct"]  # the same, spelled otherwise
        assert judge_at(one.replace("//", "//me:word@")).verdicts([case()]) == ["correct"]
        assert len(endpoint.requests) == 1


HALF = json.dumps(completion("correct \ud83d")).encode()


def test_half_a_character_costs_its_case_alone(judge_at):
    cases = [case("Yes."), case("odd \udc00"), case("No.")]

    def behave(_, text):
        return raw(HALF) if "No." in text else "correct"

    with serve(behave) as (url, endpoint):
        for _ in range(2):
            judge = judge_at(url)
            assert judge.verdicts(cases) == ["correct", "unparsable", "unparsable"]
            assert judge.unjudged(cases) == {
                1: "half a character, '\\udc00', cannot be shown to the judge",
                2: "the judge's reply has half a character, '\\ud83d'",
            }
        assert len(endpoint.requests) == 2


@pytest.mark.parametrize("content", [5, ["correct"], {"text": "correct"}, True])
def test_a_reply_whose_text_is_none_is_asked_for_again(judge_at, content):
    reply = raw(json.dumps(completion(content)).encode())
    with serve(lambda number, _: reply if number == 1 else "correct") as (url, _):
        assert judge_at(url).verdicts([case()]) == ["correct"]


def test_a_reply_nested_without_end_is_asked_for_again(judge_at):
    reply = raw(b'{"choices":' + b"[" * 100_000)
    with serve(lambda number, _: reply if number == 1 else "correct") as (url, _):
        assert judge_at(url).verdicts([case()]) == ["correct"]


KEY = "sk-very/secret+key"


def echo(code):
    """An endpoint that says back which key it was given."""

    def answer(handler):
        said = f"{handler.headers['Authorization']} at {handler.path}: bad"
        handler.reply(code, {"error": {"message": said}} if code != 200 else {"said": said})

    return answer


@pytest.mark.parametrize("code", [200, 401, 500])
@pytest.mark.parametrize("where", ["key", "user", "password", "query"])
def test_the_key_is_never_shown(tmp_path, code, where):
    quoted = quote(KEY, safe="")
    with serve(lambda *_: echo(code)) as (url, _):
        port_on = url.removeprefix("http://")
        urls = {
            "key": url,
            "user": f"http://{quoted}@{port_on}",
            "password": f"http://me:{quoted}@{port_on}",
            "query": f"{url}?api-key={quoted}",
        }
        options = {"cache": tmp_path / "judge.jsonl", "attempts": 2, "pause": 0.01}
        key = KEY if where == "key" else None
        judge = LanguageModelJudge("the-model", urls[where], key, **options)
        with pytest.raises(JudgeError) as error:
            judge.verdicts([case()])
    shown = "".join(traceback.format_exception(error.value))
    assert f"at {url}/ " in str(error.value)
    pair = base64.b64encode(f"{'me' if where == 'password' else KEY}:{KEY}".encode()).decode()
    alone = base64.b64encode(f"{KEY}:".encode()).decode()
    for secret in (KEY, quoted, quote(KEY), pair, alone):
        assert secret not in shown


def test_a_key_that_a_reply_quotes_is_not_kept(judge_at, tmp_path):
    with serve(lambda *_: "correct, secret one") as (url, _):
        assert judge_at(url).verdicts([case()]) == ["correct"]
    assert b"correct, *** one" in (tmp_path / "judge.jsonl").read_bytes()
    assert b"secret" not in (tmp_path / "judge.jsonl").read_bytes()


NO_URLS = (
    *("nonsense", "http://", "ftp://host/v1", "http://host:99999/v1", "http://host:x/v1"),
    *("http://a b/v1", "http://[::1/v1", "http://h/\x00", "file:///etc", "//host/v1", "http:/v1"),
)


@pytest.mark.parametrize("url", NO_URLS)
def test_a_url_that_is_none_is_refused_at_once(url):
    with pytest.raises(ValueError, match=r"the judge's URL .* is none: write http://host:port/v1"):
        get_judge("gpt", url)


def test_a_bad_url_is_shown_without_its_secrets():
    for url in (f"http://me:{KEY}@h:x/v1", f"{KEY}@h", f"http://h:x/v1?k={KEY}", f"h/{KEY}"):
        with pytest.raises(ValueError, match="the judge's URL") as error:
            get_judge("gpt", url, KEY)
        assert "secret" not in str(error.value)


@pytest.mark.parametrize("key", ["two\nlines", "cl\u00e9", "a\x00b", "half \ud800"])
def test_a_key_that_cannot_be_sent_is_refused_unseen(key):
    with pytest.raises(ValueError, match="the judge's key has a character") as error:
        get_judge("gpt", key=key)
    assert key not in str(error.value)


def test_a_key_may_end_with_its_file_s_newline():
    assert get_judge("gpt", key="word\n").endpoint.key == "word"


def test_a_model_s_name_is_text():
    with pytest.raises(ValueError, match="udcff"):
        get_judge("gpt\udcff", key="k")


def test_words_that_are_hardly_secret_are_left_alone():
    endpoint = Endpoint("http://host/v1?v=1", "k")
    assert endpoint.hide("kept v=1") == "kept v=1"
    assert endpoint.shown == "http://host/v1/"
    assert Endpoint("HTTPS://Host:443/v1").shown == "https://host/v1/"
    assert Endpoint("http://[::1]:8000").shown == "http://[::1]:8000/"
