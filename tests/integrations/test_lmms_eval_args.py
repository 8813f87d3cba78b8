"""lmms-eval's adapter without lmms-eval: settings and documents. In it: tests/with_lmms_eval."""

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from PIL import Image

from lookback.integrations.lmms_eval import manifest
from lookback.integrations.lmms_eval.tasks import (
    Log,
    Settings,
    conversation_of,
    simple_conversation,
    source_of,
    unsupported_kwargs,
)
from lookback.registry import SettingError

PAGE = Path(__file__).parents[2] / "docs" / "lmms-eval.md"
RED, BLUE = (Image.new("RGB", (4, 4), color) for color in ("red", "blue"))
TASK = {"max_new_tokens": 16, "temperature": 0, "top_p": 1.0, "num_beams": 1, "do_sample": False}


def test_numbers_given_as_texts_are_numbers():
    given = {"n": "4", "temperature": "0.7", "alpha": 1, "seed": 3, "pretrained": 7, "lam": None}
    settings = Settings.of(given | {"trust_remote_code": "True", "device": "cpu"})
    assert (settings.n, settings.temperature, settings.seed) == (4, 0.7, 3)
    assert settings.pretrained == "7"
    assert settings.scorer_settings == {"alpha": 1.0}
    assert settings.loading == {"device": "cpu", "trust_remote_code": True}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"beauty": 1}, "model_args has 'beauty'; there are pretrained, engine, device, dtype"),
        ({"n": "many"}, "n = 'many': Input should be a valid integer"),
        ({"n": 0}, "n = 0: must be at least 1"),
        ({"n": 2.5}, "n = 2.5: Input should be a valid integer"),
        ({"n": True}, "n = True: must not be True or False"),
        ({"batch_size": "auto"}, "batch_size = 'auto': Input should be a valid integer"),
        ({"max_new_tokens": 0}, "max_new_tokens = 0: must be at least 1"),
        ({"temperature": "hot"}, "temperature = 'hot': Input should be a valid number"),
        ({"temperature": 0}, "temperature = 0 draws one response 25 times"),
        ({"top_p": 2}, "top_p = 2.0: must be above 0"),
        ({"scorer": "beauty"}, "no scorer named 'beauty'"),
        ({"scorer": "oracle"}, "scorer 'oracle' needs the truth"),
        ({"scorer": "entropy", "alpha": 1}, "scorer 'entropy' has no setting 'alpha'"),
        ({"prune": "much"}, "prune = 'much': write half"),
        ({"prune": "16:12+8:6"}, "tokens must rise"),
        (
            {"trust_remote_code": "perhaps"},
            "'perhaps': Input should be a valid boolean",
        ),
    ],
)
def test_wrong_settings_are_named_before_a_model_is_loaded(given, said):
    with pytest.raises((ValueError, SettingError), match=re.escape(said)):
        Settings.of(given)


def test_a_log_is_not_written_over(tmp_path):
    (tmp_path / "log.jsonl").write_text("mine")
    with pytest.raises(ValueError, match="there is such a file"):
        Log(str(tmp_path / "log.jsonl"))
    assert Log(str(tmp_path / "log.jsonl"), rank=1).path == tmp_path / "log.1.jsonl"
    assert (tmp_path / "log.jsonl").read_text() == "mine"


def test_best_of_n_has_its_own_temperature_and_one_has_the_tasks():
    drawn = Settings.of({}).sampling(TASK)
    assert (drawn["n"], drawn["temperature"], drawn["top_p"]) == (25, 1.2, 0.9)
    assert drawn["max_new_tokens"] == 16
    assert Settings.of({"temperature": 0.5}).sampling(TASK)["temperature"] == 0.5
    one = Settings.of({"n": 1})
    assert one.sampling(TASK)["temperature"] == 0
    assert one.sampling({"do_sample": True, "top_k": 5})["temperature"] == 1
    assert one.sampling({"do_sample": True, "top_k": 5})["top_k"] == 5
    assert one.sampling({"temperature": 0.2, "top_p": 0.5})["top_p"] == 0.5
    assert one.sampling({"temperature": 0.2, "do_sample": False})["temperature"] == 0
    assert one.sampling({"temperature": 0, "top_p": 0})["top_p"] == 1
    assert Settings.of({"n": 1, "temperature": 0.3}).sampling(TASK)["temperature"] == 0.3


def test_lengths_stops_and_beams():
    settings = Settings.of({})
    assert settings.sampling({})["max_new_tokens"] == 256
    assert settings.sampling({"max_gen_toks": 7})["max_new_tokens"] == 7
    assert Settings.of({"max_new_tokens": 9}).sampling(TASK)["max_new_tokens"] == 9
    assert settings.sampling({"until": ["\n\n", "", "Q:"]})["stop"] == ["Q:"]
    assert settings.sampling({"until": "Q:"})["stop"] == ["Q:"]
    for none in ({"until": ["\n\n"]}, {"until": None}, {}):
        assert settings.sampling(none)["stop"] is None
    with pytest.raises(ValueError, match="num_beams = 3"):
        settings.sampling({"num_beams": 3})
    assert unsupported_kwargs(TASK | {"repetition_penalty": 1.0, "until": []}) == {}
    assert unsupported_kwargs({"repetition_penalty": 1.2}) == {"repetition_penalty": 1.2}


def test_pruning_is_judged_with_the_settings_that_choose():
    rule = Settings.of({"prune": "16:12+32:6", "alpha": 2}).pruning
    assert list(rule.of(25, {}).kept.items()) == [(16, 12), (32, 6)]
    assert rule.settings == {"alpha": 2.0}
    assert Settings.of({}).pruning is None


def test_messages_keep_their_turns_and_images():
    turns = [
        {"role": "system", "content": [{"type": "text", "text": "Be brief."}]},
        {"role": "user", "content": [{"type": "image", "url": RED}, {"type": "text", "text": "a"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "b"}]},
        {"role": "user", "content": [{"type": "video", "url": [RED, BLUE]}]},
    ]
    found = conversation_of(turns)
    assert [turn.role for turn in found.turns] == ["system", "user", "assistant", "user"]
    assert found.parts("image")[0].media is RED
    assert found.parts("video")[0].media == [RED, BLUE]
    assert source_of(found) is None
    assert source_of(conversation_of([*turns[:1], {"role": "user", "content": "c"}])) == "none"


def test_what_is_shown_stands_before_the_text_or_in_its_places():
    def kinds(text, visuals):
        [turn] = simple_conversation(text, visuals).turns
        return [part.text or part.media for part in turn.parts]

    assert kinds("Why?", [RED, BLUE]) == [RED, BLUE, "Why?"]
    assert kinds("Why?", RED) == [RED, "Why?"]
    assert kinds("A <image> b <image>", [RED, BLUE]) == ["A ", RED, " b ", BLUE]
    assert kinds("Why?", []) == kinds("Why?", None) == ["Why?"]
    shown = simple_conversation("Why?", ["a.JPG", "b.mp4", [RED, BLUE], {"path": "c.mkv"}])
    assert [part.kind for part in shown.turns[0].parts] == ["image", *["video"] * 3, "text"]


@pytest.mark.parametrize(
    ("visual", "said"),
    [
        ("a.wav", "has audio"),
        ({"array": [0.0], "sampling_rate": 16000}, "has audio"),
        ({"type": "video", "url": "a.mp4", "video_start": 3}, "video_start = 3"),
        (None, "gave None"),
        (3, "gave 3"),
    ],
)
def test_what_cannot_be_shown_is_named(visual, said):
    with pytest.raises(ValueError, match=said):
        simple_conversation("Why?", [visual])


@pytest.mark.parametrize(
    ("part", "said"),
    [
        ({"type": "audio", "url": "a.wav"}, "has audio"),
        ({"type": "video", "url": "a.mp4", "end_time": 2.5}, "end_time = 2.5"),
        ({"type": "table"}, "the type is 'table'"),
    ],
)
def test_parts_that_cannot_be_shown_are_named(part, said):
    with pytest.raises(ValueError, match=said):
        conversation_of([{"role": "user", "content": [part]}])


def test_the_page_has_every_setting_and_its_default():
    rows = dict(re.findall(r"^\| `(\w+)` \| ?`?([^|`]*?)`? ?\|", PAGE.read_text(), re.MULTILINE))
    assert list(rows) == list(Settings.model_fields)
    told = {name: value for name, value in rows.items() if value}
    fields = Settings.model_fields.items()
    known = {name: str(field.default) for name, field in fields if field.default}
    assert told == known


@pytest.mark.skipif(find_spec("lmms_eval") is not None, reason="it is there")
def test_without_lmms_eval_it_is_said_what_to_install():
    with pytest.raises(ImportError, match="pip install lmms-eval"):
        manifest()


def test_lookback_does_not_import_it():
    code = "import sys, lookback; assert not any('lmms' in name for name in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
