"""`lookback check`: green on models that are right, red on every bug that is planted."""

import copy
import json
import sys
from contextlib import contextmanager

import pytest
import torch
from zoo import EXTRA_NAMES, MORE_NAMES, NAMES, build

import lookback
from lookback.engines.transformers import engine, generation
from lookback.engines.transformers.attention import partial, tap
from lookback.engines.transformers.attention.tap import Reader
from lookback.engines.transformers.check import CheckReport
from lookback.engines.transformers.decoding import batch, decoder, prefix
from lookback.engines.transformers.decoding.decoder import Decoder

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def loaded(name):
    zoo = build(name)
    return lookback.load(zoo.model, zoo.processor)


def wrong(report):
    return {one.what for one in report.checks if one.ok is False}


@pytest.mark.parametrize("name", [*NAMES, *EXTRA_NAMES, *MORE_NAMES])
def test_every_family_passes(name):
    report = loaded(name).check()
    assert wrong(report) == set()
    assert report.ok
    assert {one.what for one in report.checks if one.ok} >= {"sample", "record"}
    assert report.layers > 0
    assert all(speed > 0 for speed in report.tokens_per_second.values())
    json.dumps(report.to_dict(), allow_nan=False)


def test_float64_passes_where_the_model_has_numbers_of_its_own():
    """Its eager attention has none for a padded prompt."""
    zoo = build("llava")
    report = lookback.load(copy.deepcopy(zoo.model).double(), zoo.processor).check()
    assert wrong(report) == set()
    assert {one.what for one in report.checks if one.ok} >= {"sample", "record"}


@pytest.fixture
def lb():
    return loaded("llava")


def test_the_model_is_left_as_it_was(lb):
    from lookback.engines.common.compat import attention_name
    from lookback.engines.transformers.support import decoder_configs

    names = [attention_name(config) for config in decoder_configs(lb.model)]
    session, batch = torch.random.get_rng_state(), lb.decoder.batch_rows
    lb.check()
    assert [attention_name(config) for config in decoder_configs(lb.model)] == names
    assert torch.equal(session, torch.random.get_rng_state())
    assert lb.decoder.batch_rows == batch
    assert "generate" not in vars(lb.model)


@pytest.mark.parametrize("name", ["llava_gqa", "gemma3", "qwen2_5_vl"])
def test_the_path_of_other_devices_passes_too(name, monkeypatch):
    """Plain matrix products, as on a GPU, instead of the fused kernel of a CPU."""
    monkeypatch.setattr(partial, "trusted", lambda *args: ())
    assert wrong(loaded(name).check()) == set()


class TestPlanted:
    """Each bug that a tired programmer could write turns the check red, where it should."""

    def test_the_tokens_own_row(self, lb, monkeypatch):
        read = Decoder.score_batch

        def late(self, prefix, responses, **settings):
            found = read(self, prefix, responses, **settings)
            for one in found:
                one.signals[1, :-1] = one.signals[1, 1:].copy()
            return found

        monkeypatch.setattr(Decoder, "score_batch", late)
        assert "score, all tokens in one pass" in wrong(lb.check())

    def test_a_tempered_probability(self, lb, monkeypatch):
        stats = decoder.token_stats
        for module in (decoder, batch, generation):
            monkeypatch.setattr(module, "token_stats", lambda z, ids: stats(z / 1.2, ids))
        assert {"sample", "record", "score, token by token"} <= wrong(lb.check())

    def test_a_dropped_mask(self, monkeypatch):
        monkeypatch.setattr(tap, "_bias_of_row", lambda *args: None)
        assert "record, beside a longer prompt" in wrong(loaded("llava").check())

    def test_padding_that_stays(self, lb, monkeypatch):
        monkeypatch.setattr(decoder, "without_padding", lambda inputs, source: (inputs, source))
        assert "score, a prompt padded on the left" in wrong(lb.check())

    def test_state_of_another_prompt(self, monkeypatch):
        from lookback.engines.transformers.decoding import session

        monkeypatch.setattr(session, "restore", lambda kept: None)
        found = wrong(loaded("qwen2_5_vl").check())
        assert "two prompts in turn" in found
        assert "your own decoding, with LookBack's calls in between" in found

    def test_a_layer_that_is_not_counted(self, lb, monkeypatch):
        add = Reader.add

        def skipping(self, shares):
            add(self, torch.zeros_like(shares) if self.layers_read == 1 else shares)

        monkeypatch.setattr(Reader, "add", skipping)
        assert len(wrong(lb.check())) >= 6

    def test_layers_in_another_order(self, lb, monkeypatch):
        read = Reader.lookback

        def turned(self, layers):
            found = read(self, layers)
            return torch.cat([found[:1], found[1:].flip(0)])

        monkeypatch.setattr(Reader, "lookback", turned)
        assert wrong(lb.check()) == {"score, layer by layer"}

    def test_the_source_of_another_image(self, lb, monkeypatch):
        real = engine.source_mask

        def first(prompter, conversation, ids, source=None):
            mask = real(prompter, conversation, ids, source)
            mask[mask.nonzero()[-1]] = False
            return mask

        monkeypatch.setattr(engine, "source_mask", first)
        assert "two images" in wrong(lb.check())

    def test_a_continuation_that_forgets_its_mask(self, monkeypatch):
        own = prefix.SharedPrefix._own

        def blind(self, call):
            if call.query.shape[2] > 1:
                return prefix.attend(call.query, call.key, call.value, scale=call.settings().scale)
            return own(self, call)

        monkeypatch.setattr(prefix.SharedPrefix, "_own", blind)
        found = wrong(loaded("llava").check())
        assert "score, all tokens in one pass" in found
        assert "score, token by token" not in found

    def test_a_recorder_that_reads_the_first_row(self, lb, monkeypatch):
        real = tap.share_of_last_row
        monkeypatch.setattr(
            tap, "share_of_last_row", lambda q, *rest, **more: real(q[:, :, :1], *rest, **more)
        )
        assert "record" in wrong(lb.check())

    def test_an_exception_is_said_and_counts(self, lb, monkeypatch):
        @contextmanager
        def broken(*args):
            raise RuntimeError("out\nof memory")
            yield

        from lookback.engines.transformers import check

        monkeypatch.setattr(check, "record", broken)
        report = lb.check()
        (note,) = {one.note for one in report.checks if one.what.startswith("record")}
        assert note == "RuntimeError: out of memory"
        assert not report.ok


class TestCommand:
    def test_the_embedded_model_passes(self, command):
        code, out, _ = command("check", "--json")
        report = json.loads(out)
        assert (code, report["ok"], report["model"]) == (0, True, "embedded")

    def test_a_wrong_number_is_status_one(self, command, monkeypatch):
        from lookback.engines.transformers.engine import TransformersEngine

        real = TransformersEngine.check

        def planted(self, progress=None):
            report = real(self, progress)
            bad = report.checks[0].__class__("made up", {"log_prob": 2.0}, False, "planted")
            return CheckReport(**(vars(report) | {"checks": [*report.checks, bad]}))

        monkeypatch.setattr(TransformersEngine, "check", planted)
        code, out, _ = command("check")
        assert code == 1
        assert "WRONG" in out
        assert "do not trust" in out

    def test_an_engine_without_it_says_so(self, command, monkeypatch):
        monkeypatch.setenv("LOOKBACK_PLUGINS", "")
        toy = sys.modules["toy_engine"] if "toy_engine" in sys.modules else __import__("toy_engine")
        assert toy.load
        code, _, err = command("check", "--engine", "toy")
        assert code == 1
        assert "lookback check needs an engine that can compare its numbers" in err
