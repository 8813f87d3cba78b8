"""What the vLLM engine does beside vLLM: records of workers, requests and answers.

vLLM itself is needed for none of it; the whole engine is tested in tests/inside_vllm.
"""

import asyncio
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from engines.reference import noise

from lookback.conversations import Conversation, SourceError
from lookback.engines.common.logits import streams
from lookback.engines.vllm.client.client import gather_ordered
from lookback.engines.vllm.client.prompts import Prompt, Prompts
from lookback.engines.vllm.client.results import (
    Answer,
    VllmError,
    Workers,
    blinded,
    checked,
    continuation,
    finish_of,
)
from lookback.engines.vllm.client.scoring import read
from lookback.engines.vllm.client.stream import PartialCandidates, PartialRequest
from lookback.engines.vllm.tap_request import TapRequest, mask_of, runs
from lookback.engines.vllm.worker import ledger as ledger_file
from lookback.engines.vllm.worker.batch import Batch, Requests, placeholders
from lookback.engines.vllm.worker.ledger import Ledger
from lookback.errors import UnsupportedModelError
from lookback.signals import SIGNALS, WRITING


class TestLedger:
    def test_numbers_go_to_their_token_and_leave_with_the_record(self):
        ledger = Ledger()
        whole, apart = ledger.open("a/0", 2, None, top=1), ledger.open("a/1", 2, layers=2, top=2)
        assert ledger.open("a/0", 9, None) is whole
        places = [whole.at(1), apart.at(0)]
        ledger.file("looks", places, torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
        ledger.file("stats", places, torch.tensor([[-1.0, 2.0, 3.0], [-4.0, 5.0, 6.0]]))
        ledger.file("top", places, torch.tensor([[[-1.0, -2.0], [7.0, 8.0]]] * 2))
        found = {name: numbers(one) for name, one in ledger.take(["a/1", "a/0", "b/0"]).items()}
        nan = float("nan")
        np.testing.assert_equal(found["a/0"][0], np.float32([nan, 3]))
        np.testing.assert_equal(found["a/0"][1], np.float32([nan, nan, nan, -1, 2, 3]))
        np.testing.assert_equal(found["a/0"][2], np.float32([nan, nan, -1, 7]))
        np.testing.assert_equal(found["a/1"][0], np.float32([3, 4, nan, nan]))
        np.testing.assert_equal(found["a/1"][2], np.float32([-1, -2, 7, 8, nan, nan, nan, nan]))
        assert (len(ledger), ledger.take(["a/0"])) == (0, {})

    def test_tokens_before_and_behind_the_response_have_no_place(self):
        record = Ledger().open("a/0", 3, None)
        assert [record.at(token) is None for token in (-1, 0, 2, 3)] == [True, False, False, True]

    def test_a_peek_takes_some_tokens_and_leaves_the_record(self):
        ledger = Ledger()
        record = ledger.open("a/0", 3, None)
        ledger.file("stats", [record.at(1)], torch.tensor([[-1.0, 2.0, 3.0]]))
        found = ledger.peek({"a/0": [1, 2], "b/0": [0, 1]})
        assert list(found) == ["a/0"]
        np.testing.assert_equal(numbers(found["a/0"])[1], np.float32([-1, 2, 3]))
        assert len(ledger) == 1

    def test_all_candidates_of_a_request_are_dropped_and_no_others(self):
        ledger = Ledger()
        for name in ("a/0", "a/1", "ab/0"):
            ledger.open(name, 1, None)
        ledger.drop("a")
        assert list(ledger.take(["a/0", "a/1", "ab/0"])) == ["ab/0"]

    def test_beyond_the_limit_the_oldest_is_forgotten(self, monkeypatch):
        monkeypatch.setattr(ledger_file, "MOST", 2)
        ledger = Ledger()
        for name in ("a/0", "b/0", "b/0", "c/0"):
            ledger.open(name, 1, None)
        assert list(ledger.take(["a/0", "b/0", "c/0"])) == ["b/0", "c/0"]

    def test_numbers_wait_on_the_device_for_so_many_steps(self, monkeypatch):
        monkeypatch.setattr(ledger_file, "EVERY", 1)  # of a step: looks and stats
        ledger = Ledger()
        record = ledger.open("a/0", 1, None)
        ledger.file("looks", [record.at(0)], torch.ones(1, 2))
        assert np.isnan(record.looks).all()
        ledger.file("stats", [record.at(0)], torch.ones(1, 3))
        assert record.looks.tolist() == [2.0]
        ledger.file("looks", [record.at(0)], torch.zeros(1, 2))  # the next step's wait again
        assert record.looks.tolist() == [2.0]


def numbers(packed):
    return [np.frombuffer(one, np.float32) for one in packed]


def record(looks, stats=None, top=()):
    """What a worker sends of a response of two tokens; without `stats`, it saw no logits."""
    stats = np.full((2, 3), np.nan) if stats is None else stats
    return tuple(np.asarray(one, np.float32).tobytes() for one in (looks, stats, top))


STATS = [[-1, 2, 3], [-4, 5, 6]]  # log p, self-certainty, entropy


class TestWorkers:
    @pytest.mark.parametrize(("ranks", "stages"), [(1, 1), (2, 1), (1, 2), (2, 2)])
    def test_heads_of_a_layer_are_added_and_layers_of_stages_stand_in_a_row(self, ranks, stages):
        """Of four layers each rank has some heads, each stage some layers; the last has logits."""
        rng = np.random.default_rng(0)
        shares = rng.random((stages, ranks, 2, 4 // stages))  # stages, ranks, tokens, layers
        installed = [{"layers": 4 // stages, "heads": 8 // ranks, "backend": "x"}] * (
            ranks * stages
        )
        workers = Workers.of(installed, stages)
        assert (workers.layers, workers.heads) == (4, 8 * stages)
        layers = np.concatenate(list(shares.sum(1)), 1)
        for by_layer in (True, False):
            sent = [
                record(rank if by_layer else rank.sum(1), STATS if stage == stages - 1 else None)
                for stage, of_stage in enumerate(shares)
                for rank in of_stage
            ]
            signals, apart = workers.signals(sent, by_layer)
            found = dict(zip(SIGNALS, signals, strict=True))
            np.testing.assert_allclose(found["visual_lookback"], layers.mean(1), rtol=1e-6)
            np.testing.assert_array_equal(found["log_prob"], [-1, -4])
            np.testing.assert_array_equal(found["self_certainty"], [2, 5])
            np.testing.assert_array_equal(found["entropy"], [3, 6])
            assert (apart is None) != by_layer
            if by_layer:
                np.testing.assert_allclose(apart, layers, rtol=1e-6)

    def test_the_likeliest_tokens_stand_below_the_signals(self):
        workers = Workers(1, 1, 1, 1, "x")
        rows = workers.rows([record([[1], [2]], STATS, [[-1, -2, 7, 8], [-3, -4, 9, 10]])], True, 2)
        assert rows[4:].tolist() == [[1, 2], [-1, -3], [-2, -4], [7, 9], [8, 10]]
        one = continuation([7, 9], rows, "end", top=2)
        assert one.top.token_ids.tolist() == [[7, 8], [9, 10]]
        assert one.top.log_prob.tolist() == [[-1, -2], [-3, -4]]
        assert one.by_layer.tolist() == [[1], [2]]

    def test_what_no_worker_knows_is_said(self):
        with pytest.raises(VllmError):
            Workers(2, 1, 1, 1, "x").signals([None, None])


class TestAsking:
    def test_what_is_asked_comes_back_from_the_extra_arguments(self):
        tap_request = TapRequest(
            "k", [[1, 3]], 5, 7, 1.2, 0.9, 3, by_layer=True, top=2, index=4, done=6
        )
        assert TapRequest.of(tap_request.extra()) == tap_request
        assert TapRequest.of({"lookback": "k"}) == TapRequest("k")
        assert TapRequest.of({"other": 1}) is None
        assert TapRequest.of(None) is None

    @pytest.mark.parametrize(
        ("mask", "spans"),
        [([1, 1, 0, 1], [[0, 2], [3, 4]]), ([0, 1, 0], [[1, 2]]), ([0, 0], []), ([1], [[0, 1]])],
    )
    def test_runs_are_from_their_first_token_to_behind_their_last(self, mask, spans):
        mask = np.array(mask, dtype=bool)
        assert runs(mask) == spans
        np.testing.assert_array_equal(mask_of(spans, len(mask)), mask)


def spans(*ends):
    """As vLLM says where an image's embeddings are: both ends are among them."""
    return SimpleNamespace(extract_embeds_range=lambda: list(ends))


class TestRequests:
    def known(self, name, tap_request, prompt=6, max_tokens=5):
        params = SimpleNamespace(
            extra_args=tap_request and tap_request.extra(), max_tokens=max_tokens
        )
        features = [SimpleNamespace(modality="image", mm_position=spans((1, 2)))]
        state = SimpleNamespace(
            prompt_token_ids=list(range(prompt)), sampling_params=params, mm_features=features
        )
        ledger, runner = Ledger(), SimpleNamespace(requests={name: state})
        return Requests(runner, ledger, 3), ledger

    def test_every_image_is_the_source_of_a_request_that_names_none(self):
        requests, ledger = self.known("x", None)
        found = requests.get("x")
        assert found.source.tolist() == [False, True, True, False, False, False]
        assert (found.first, found.record, found.uniform, len(ledger)) == (5, None, None, 0)
        sound = SimpleNamespace(modality="audio", mm_position=spans((0, 1)))
        assert not placeholders([sound], 3).any()

    @pytest.mark.parametrize(("name", "index"), [("12_x", 12), ("x", 0), ("x_3", 0)])
    def test_a_candidate_has_the_number_before_its_name_and_that_stream(self, name, index):
        requests, ledger = self.known(name, TapRequest("k", [[0, 1]], seed=3))
        found = requests.get(name)
        assert found.source.tolist() == [True, *[False] * 5]
        np.testing.assert_array_equal(found.uniform, streams(3, 1, 5, index)[0].astype("f4"))
        assert list(ledger.take([f"k/{index}"])) == [f"k/{index}"]

    def test_one_that_goes_on_goes_on_in_its_stream(self):
        requests, ledger = self.known("x", TapRequest("k", [], 2, seed=3, index=4, done=3))
        expected = streams(3, 1, 5, 4)[0, 3:].astype("f4")
        np.testing.assert_array_equal(requests.get("x").uniform, expected)
        assert list(ledger.take(["k/0"])) == ["k/0"]

    def test_a_given_response_begins_behind_the_row_that_predicts_it(self):
        """A prompt of four, and the first two tokens of three: the last is not sent."""
        requests, _ = self.known("x", TapRequest("k", [[0, 1]], 3, seed=1, given=[7, 8, 9]))
        found = requests.get("x")
        assert (found.first, found.uniform) == (3, None)
        batch = Batch(["x"], [found])
        assert (batch.given, batch.wanted, batch.drawing) == (True, True, [])
        places = [batch.places(np.array([end]))[0] for end in (3, 4, 6, 7)]
        assert [place and place[1] for place in places] == [None, 0, 2, None]

    def test_those_that_ended_are_forgotten(self):
        requests, _ = self.known("x", None)
        first = requests.get("x")
        requests.forget_ended()
        assert requests.get("x") is first
        requests.runner.requests.clear()
        requests.forget_ended()
        assert len(requests) == 0

    def test_rows_are_drawn_together_if_their_settings_are_alike(self):
        found = []
        for name, length, temperature in (("0_x", 2, 1.0), ("1_x", 3, 1.0), ("2_x", 2, 0.5)):
            tap_request = TapRequest("k", [], length, 3, temperature, 0.9, 5)
            found.append(self.known(name, tap_request)[0].get(name))
        alike, other = Batch(["0_x", "1_x", "2_x"], found).drawing
        assert (alike[0], alike[1].tolist()) == ((1.0, 0.9, 5), [0, 1])
        assert (other[0], other[1].tolist()) == ((0.5, 0.9, 5), [2])
        np.testing.assert_array_equal(alike[2][0], [*found[0].uniform, 0])
        np.testing.assert_array_equal(alike[2][1], found[1].uniform)


class TestAnswers:
    @pytest.mark.parametrize(
        ("reason", "at", "finish"),
        [
            ("stop", None, "end"),
            ("stop", 7, "end"),
            ("stop", ".", "stop"),
            ("length", None, "length"),
        ],
    )
    def test_why_a_candidate_ended(self, reason, at, finish):
        assert finish_of(SimpleNamespace(finish_reason=reason, stop_reason=at)) == finish

    def made(self, looks=0.5, layers=0, top=0, **prompt):
        rows = np.ones((4 + layers + 2 * top, 2), np.float32)
        rows[0], rows[1] = -1, looks
        return continuation([5, 6], rows, "end", top), Prompt(
            {}, [1], [], **{"blind": False} | prompt
        )

    def test_a_prompt_without_a_source_is_not_looked_at(self):
        one, prompt = self.made(layers=2, blind=True)
        found = blinded(one, prompt)
        assert found.signals[1].tolist() == [0, 0]
        assert found.by_layer.tolist() == [[0, 0]] * 2
        assert blinded(*self.made()).signals[1].tolist() == [0.5, 0.5]
        assert checked(*self.made(looks=np.nan, blind=True)).signals[1].tolist() == [0, 0]

    def test_a_token_that_the_tap_missed_is_an_error(self):
        with pytest.raises(VllmError):
            checked(*self.made(looks=[0.5, np.nan]))
        one, prompt = self.made(top=1)
        assert checked(one, prompt) is one
        one.top.log_prob[1] = np.nan
        with pytest.raises(VllmError):
            checked(one, prompt)

    def test_a_response_that_was_cached_is_read_again_without_the_cache(self):
        asked, whole = [], np.float32([[-1, -2], [0.5, 0.5], [1, 1], [1, 1]])

        def engine(missing):
            async def ask(prompt, tap_request, **settings):
                asked.append((prompt["prompt_token_ids"], tap_request.given, settings))
                rows = whole.copy()
                if "skip_reading_prefix_cache" not in settings:
                    rows[missing, 0] = np.nan
                return [Answer([7, 8], rows, "given")]

            return SimpleNamespace(client=SimpleNamespace(ask=ask))

        prompt = Prompt({}, [1, 2], [[0, 1]], False)
        for missing, reads in ((0, 2), (1, 2), ([], 1)):
            asked.clear()
            found = asyncio.run(read(engine(missing), prompt, [7, 8], False))
            np.testing.assert_array_equal(found.signals, whole)
            assert [one[:2] for one in asked] == [([1, 2, 7], [7, 8])] * reads
            assert found.finish == "given"


class TestPrompts:
    def prompts(self, placed, most=9):
        async def render(text, media, add_special):
            return {"prompt_token_ids": range(8), "mm_placeholders": {"image": placed}}

        model_config = SimpleNamespace(max_model_len=most)
        client = SimpleNamespace(render=render, llm=SimpleNamespace(model_config=model_config))
        prompter = SimpleNamespace(text=lambda _: "text", adds_special=lambda _: True)
        return Prompts(client, prompter)

    def made(self, source, images=2):
        placed = [spans((1, 2)), spans((4, 4), (6, 6))]
        two = Conversation.of([noise(1), noise(2)], "who?")
        return asyncio.run(self.prompts(placed[:images]).of(two, source))

    @pytest.mark.parametrize(
        ("source", "marked", "blind", "salted"),
        [
            (None, [[1, 3], [4, 5], [6, 7]], False, False),
            ("image:0", [[1, 3]], False, True),
            ("image:1", [[4, 5], [6, 7]], False, True),
            ("none", [[1, 3], [4, 5], [6, 7]], True, False),
        ],
    )
    def test_the_source_is_where_vllm_placed_it(self, source, marked, blind, salted):
        prompt = self.made(source)
        assert (prompt.source, prompt.blind) == (marked, blind)
        assert ("cache_salt" in prompt.rendered) == salted

    def test_other_marks_are_cached_apart(self):
        salts = {self.made(f"image:{i}").rendered["cache_salt"] for i in (0, 1, 0)}
        assert len(salts) == 2

    def test_an_image_that_vllm_did_not_place_is_refused(self):
        with pytest.raises(UnsupportedModelError):
            self.made(None, images=1)
        with pytest.raises(SourceError):
            self.made("image:2")

    def test_there_is_room_up_to_the_last_token(self):
        prompts, prompt = self.prompts([], most=9), Prompt({}, list(range(6)), [], False)
        assert prompts.room(prompt, 3) == 3
        with pytest.raises(ValueError, match="10 tokens"):
            prompts.room(prompt, 4)


class TestTogether:
    def test_results_are_in_order_and_each_is_told(self):
        async def all_of_them():
            second = asyncio.Event()

            async def one(i):
                await second.wait() if i == 0 else second.set()
                return i

            return await gather_ordered(
                (one(i) for i in range(3)), 3, progress=lambda *a: told.append(a)
            )

        told = []
        assert asyncio.run(all_of_them()) == [0, 1, 2]
        assert told == [(1, 3), (2, 3), (3, 3)]

    @pytest.mark.parametrize("kept", [True, False])
    def test_an_error_stands_in_its_place_or_ends_all(self, kept):
        async def one(i):
            if i == 1:
                raise OSError("gone")
            return i

        work = gather_ordered([one(i) for i in range(3)], 3, return_exceptions=kept)
        if kept:
            first, error, last = asyncio.run(work)
            assert (first, type(error), last) == (0, OSError, 2)
        else:
            with pytest.raises(OSError, match="gone"):
                asyncio.run(work)


def output(index, ids, reason=None):
    return SimpleNamespace(index=index, token_ids=ids, finish_reason=reason, stop_reason=None)


class TestWriting:
    def test_a_candidate_is_told_with_as_many_tokens_as_have_numbers(self):
        writing = PartialCandidates(2, 4, layers=0, top=0, streamed=True)
        part = PartialRequest(writing)
        part.begin(["k/0", "k/1"])
        part.update([output(0, [5, 6, 8]), output(1, [7])])
        assert writing.missing() == {"k/0": [0, 3], "k/1": [0, 1]}
        assert writing.changed() == []
        rows = -np.ones((4, 3), np.float32)
        rows[1, 1] = np.nan  # attention comes before the logits, or after them
        writing.add("k/0", rows)
        ((number, one),) = writing.changed()
        assert (number, one.token_ids, one.finish) == (0, [5], WRITING)
        assert writing.missing() == {"k/0": [1, 3], "k/1": [0, 1]}
        part.update([output(0, [5, 6, 8], "stop")])
        assert not writing.ended
        assert writing.changed() == []  # it has ended, and its last numbers are not there
        answers = [
            Answer([5, 6, 8], -np.ones((4, 3)), "end"),
            Answer([7], -np.ones((4, 1)), "length"),
        ]
        part.update([output(1, [7], "length")])
        assert writing.ended
        part.end(["k/0", "k/1"], answers)
        found = [(i, one.token_ids, one.finish) for i, one in writing.changed()]
        assert found == [(0, [5, 6, 8], "end"), (1, [7], "length")]
        assert (writing.missing(), writing.changed(), writing.steps) == ({}, [], 3)
        writing.add("k/0", rows)  # too late: it changes nothing
        assert not np.isnan(writing.rows[:, 0, :3]).any()

    @pytest.mark.parametrize(
        ("last", "reason", "ended"),
        [(True, "length", True), (False, "length", False), (False, "stop", True)],
    )
    def test_a_segment_ends_no_candidate_by_its_length(self, last, reason, ended):
        writing = PartialCandidates(1, 4, layers=0, top=0, streamed=True)
        first = PartialRequest(writing, 0, 0, last=False)
        first.begin(["k/0"])
        first.update([output(0, [5, 6])])
        first.end(["k/0"], [Answer([5, 6], -np.ones((4, 2)), "length")])
        part = PartialRequest(writing, 0, 2, last)
        part.begin(["k/1"])
        part.update([output(0, [7], reason)])
        assert writing.ended == ended
        assert writing.missing() == {"k/1": [0, 1]}
        part.end(["k/1"], [Answer([7], -2 * np.ones((4, 1)), reason)])
        ((_, one),) = writing.changed()
        assert one.token_ids == [5, 6, 7]
        assert one.signals[0].tolist() == [-1, -1, -2]
