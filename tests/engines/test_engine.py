"""What users call: score, sample and ask, on texts and pictures."""

import json
import threading
from typing import ClassVar

import numpy as np
import pytest
import torch
from engines.reference import QUESTION, noise
from zoo import build

import lookback
from lookback.signals import SIGNALS


@pytest.fixture(scope="module")
def lb():
    zoo = build("llava")
    return lookback.load(zoo.model, zoo.processor)


def same(a, b, **tolerance):
    assert a.token_ids.tolist() == b.token_ids.tolist()
    for name in SIGNALS:
        tolerance = tolerance or {"atol": 1e-5, "rtol": 1e-5}
        np.testing.assert_allclose(getattr(a, name), getattr(b, name), **tolerance)


class TestScore:
    def test_texts(self, lb):
        texts = ["a red circle", "The cat sat on the mat."]
        cands = lb.score(noise(), QUESTION, texts)
        assert [c.text for c in cands] == texts
        assert ["".join(c.tokens) for c in cands] == [" " + t for t in texts]
        assert {c.finish for c in cands} == {"given"}
        assert cands.defaults == {"alpha": 7.0, "lam": 1.5}
        assert (cands.prompt_ids == lb.decoder.image_token).sum() == 16

    def test_texts_ids_and_candidates_are_the_same_response(self, lb):
        text = lb.score(noise(), QUESTION, "a red circle")[0]
        same(text, lb.score(noise(), QUESTION, [text.token_ids.tolist()])[0])
        same(text, lb.score(noise(), QUESTION, [text])[0])

    def test_another_image_gives_another_score(self, lb):
        scores = [lb.score(noise(i), QUESTION, ["a red circle"]).scores()[0] for i in (0, 1)]
        assert abs(scores[0] - scores[1]) > 1e-3

    def test_the_end_token_is_left_out_unless_asked_for(self, lb):
        plain = lb.score(noise(), QUESTION, ["a red circle"])[0]
        ended = lb.score(noise(), QUESTION, ["a red circle"], keep_end=True)[0]
        end = lb.model.generation_config.eos_token_id
        assert ended.token_ids.tolist() == [*plain.token_ids.tolist(), end]
        np.testing.assert_allclose(ended.log_prob[:-1], plain.log_prob, atol=1e-5)

    @pytest.mark.parametrize(
        ("responses", "message"),
        [
            ([], "no responses"),
            ([[]], "response 0 is empty"),
            ([[5], [10**6]], "response 1: token id 1000000 is outside the vocabulary"),
            ([[5, -1]], "token id -1"),
            (["a", "  "], "response 1: the response '  ' is empty"),
        ],
    )
    def test_bad_responses_are_named(self, lb, responses, message):
        with pytest.raises(ValueError, match=message):
            lb.score(noise(), QUESTION, responses)

    def test_the_vocabulary_ends_before_its_size(self, lb):
        size = lb.decoder.vocab
        with pytest.raises(ValueError, match=f"token id {size} is outside the vocabulary"):
            lb.score(noise(), QUESTION, [[size]])

    def test_of_several_end_tokens_one_ends_a_response(self, lb, monkeypatch):
        monkeypatch.setattr(lb, "end_tokens", [40, 41])
        (ended,) = lb.score(noise(), QUESTION, [[30, 31]], keep_end=True)
        assert ended.token_ids.tolist() == [30, 31, 40]

    def test_it_is_the_end_that_the_chat_template_writes(self):
        """Gemma's config names the end of a text first, and the end of a turn behind it."""
        zoo = build("gemma3")
        gemma = lookback.load(zoo.model, zoo.processor)
        end = zoo.processor.tokenizer.convert_tokens_to_ids("<end_of_turn>")
        assert gemma.end_tokens.index(end) == 1
        given = [[30, 31], [30, 31, end], [30, 31, gemma.end_tokens[0]]]
        found = gemma.score(noise(), QUESTION, given, keep_end=True)
        assert [c.token_ids.tolist()[2:] for c in found] == [[end], [end], gemma.end_tokens[:1]]

    def test_an_unknown_source_is_said_before_any_image_is_read(self, lb):
        with pytest.raises(lookback.SourceError):
            lb.score("no-such-picture.png", QUESTION, ["a"], source="image:7")

    def test_tensors_of_ids(self, lb):
        (listed,) = lb.score(noise(), QUESTION, [[30, 31]])
        ids = torch.tensor([30, 31])
        for given in ([ids], ids[None], [list(ids)], [ids.to(torch.uint8)]):
            same(lb.score(noise(), QUESTION, given)[0], listed)
        assert lb.look(noise(), QUESTION, ids).token_ids.tolist() == [30, 31]
        for wrong in (ids, [ids[None]], [ids.float()], [ids > 0]):
            with pytest.raises(ValueError, match="response 0"):
                lb.score(noise(), QUESTION, wrong)

    @pytest.mark.parametrize("name", ["keep_end", "by_layer"])
    def test_what_is_neither_true_nor_false_is_named(self, lb, name):
        with pytest.raises(ValueError, match=f"{name} = 'no'"):
            lb.score(noise(), QUESTION, ["a"], **{name: "no"})

    @pytest.mark.parametrize(
        "setting", [{"share": True}, {"share": "1"}, {"share": np.nan}, {"layers": (False, True)}]
    )
    def test_what_cannot_be_hidden_is_named(self, lb, setting):
        given = {"layers": (0, 2), "share": 0.5} | setting
        with pytest.raises(ValueError, match=f"{next(iter(setting))} = "):
            lb.knockout(noise(), QUESTION, ["a"], **given)

    def test_arrays_are_images(self, lb):
        pixels = np.asarray(noise())
        shown = lb.score(noise(), QUESTION, ["a red circle"])
        for image in (pixels, torch.tensor(pixels)):
            found = lb.score(image, QUESTION, ["a red circle"])
            same(found[0], shown[0])
            assert found.messages == shown.messages

    def test_a_placeholder_among_the_ids_is_refused(self, lb):
        with pytest.raises(ValueError, match="is the image placeholder"):
            lb.score(noise(), QUESTION, [[30, lb.decoder.image_token]])

    def test_progress_reaches_the_end(self, lb):
        seen = []
        lb.score(noise(), QUESTION, ["a", "b"], progress=lambda *x: seen.append(x))
        assert seen[-1] == (2, 2)


class TestSample:
    settings: ClassVar = {"temperature": 1.2, "top_p": 0.9, "max_new_tokens": 16, "seed": 42}

    def test_five_are_the_first_five_of_twentyfive(self, lb):
        few = lb.sample(noise(), QUESTION, 5, **self.settings)
        many = lb.sample(noise(), QUESTION, 25, **self.settings)
        for a, b in zip(few, many[:5], strict=True):
            assert a.text == b.text
            same(a, b)

    def test_a_rerun_is_the_same_and_another_seed_is_not(self, lb):
        first = lb.sample(noise(), QUESTION, 5, **self.settings)
        again = lb.sample(noise(), QUESTION, 5, **self.settings)
        other = lb.sample(noise(), QUESTION, 5, **(self.settings | {"seed": 43}))
        assert [c.text for c in first] == [c.text for c in again]
        assert [c.text for c in first] != [c.text for c in other]
        assert len({c.text for c in first}) == 5

    def test_the_global_random_state_plays_no_part(self, lb):
        torch.manual_seed(0)
        first = lb.sample(noise(), QUESTION, 3, **self.settings)
        state = torch.random.get_rng_state()
        lb.sample(noise(), QUESTION, 3, **self.settings)
        assert torch.equal(state, torch.random.get_rng_state())
        torch.manual_seed(1)
        assert [c.text for c in first] == [
            c.text for c in lb.sample(noise(), QUESTION, 3, **self.settings)
        ]

    def test_signals_are_untempered(self, lb):
        """Whatever the temperature was, the signals are those of scoring."""
        for temperature in (0.5, 2.0):
            drawn = lb.sample(
                noise(), QUESTION, 4, **(self.settings | {"temperature": temperature})
            )
            drawn = [c for c in drawn if len(c.signals)]
            for a, b in zip(drawn, lb.score(noise(), QUESTION, drawn), strict=True):
                same(a, b)

    @pytest.mark.parametrize("name", ["qwen2_5_vl", "internvl"])
    def test_what_was_sampled_and_is_given_back_as_text_is_the_same(self, name):
        """Wherever the model used the tokenizer's own spelling, as trained models do."""
        lb = lookback.load(build(name).model, build(name).processor)
        drawn = lb.sample(noise(), QUESTION, 60, **(self.settings | {"max_new_tokens": 2}))
        spelled = [
            c
            for c in drawn
            if c.text.strip()
            and not any(t in c.text for t in lb.prompter.special_tokens)
            and lb.prompter.encode(cands_prompt(drawn), c.text) == c.token_ids.tolist()
        ]
        assert len(spelled) >= 5
        for a, b in zip(
            spelled, lb.score(noise(), QUESTION, [c.text for c in spelled]), strict=True
        ):
            same(a, b)

    def test_candidates_end_at_the_end_token_and_leave_the_batch(self, lb, monkeypatch):
        sizes = []
        forward = lb.decoder.forward
        monkeypatch.setattr(
            lb.decoder, "forward", lambda ids, *a: (sizes.append(len(ids)), forward(ids, *a))[1]
        )
        monkeypatch.setattr(lb, "end_tokens", list(range(10, 90)))
        drawn = lb.sample(noise(), QUESTION, 40, **self.settings)
        ended = [c for c in drawn if c.finish == "end"]
        assert ended
        assert not any(10 <= t < 90 for c in drawn for t in c.token_ids)
        assert sizes == sorted(sizes, reverse=True)
        assert sizes[-1] < sizes[0]
        kept = lb.sample(noise(), QUESTION, 40, keep_end=True, **self.settings)
        for a, b in zip(drawn, kept, strict=True):
            extra = 1 if a.finish == "end" else 0
            assert len(b.token_ids) == len(a.token_ids) + extra
            if extra:
                assert 10 <= b.token_ids[-1] < 90
        alone = [lb.score(noise(), QUESTION, [c])[0] for c in drawn if len(c.signals)]
        for a, b in zip([c for c in drawn if len(c.signals)], alone, strict=True):
            same(a, b)

    def test_stop_texts(self, lb):
        plain = lb.sample(noise(), QUESTION, 8, **self.settings)
        stop = "e"
        cut = lb.sample(noise(), QUESTION, 8, stop=stop, **self.settings)
        assert any(c.finish == "stop" for c in cut)
        for a, b in zip(plain, cut, strict=True):
            assert stop not in b.text
            assert a.token_ids[: len(b.token_ids)].tolist() == b.token_ids.tolist()
            assert (b.finish == "stop") == (stop in a.text)
        with pytest.raises(ValueError, match="stop text"):
            lb.sample(noise(), QUESTION, 1, stop=["", "x"])

    def test_greedy(self, lb):
        drawn = lb.sample(noise(), QUESTION, 3, temperature=0, max_new_tokens=5)
        assert len({c.text for c in drawn}) == 1

    def test_a_drawn_seed_is_told(self, lb):
        drawn = lb.sample(noise(), QUESTION, 2, max_new_tokens=5)
        again = lb.sample(noise(), QUESTION, 2, max_new_tokens=5, seed=drawn.sampling["seed"])
        assert [c.text for c in drawn] == [c.text for c in again]
        json.dumps(drawn.to_dict())

    def test_seeds_are_drawn_anew_and_zero_is_a_seed(self, lb):
        told = [lb.sample(noise(), QUESTION, 1, max_new_tokens=1).sampling["seed"] for _ in "abc"]
        assert len(set(told)) == 3
        assert lb.sample(noise(), QUESTION, 1, max_new_tokens=1, seed=0).sampling["seed"] == 0

    @pytest.mark.parametrize(
        "settings",
        [
            {"n": 0},
            {"temperature": -1.0},
            {"top_p": 0.0},
            {"top_p": 1.5},
            {"top_k": 0},
            {"max_new_tokens": 0},
            {"seed": -1},
            {"temperature": float("nan")},
            {"stop": 1},
            {"stop": [1]},
            {"stop": ["a", None]},
            {"stop": b"a"},
            {"keep_end": "no"},
            {"by_layer": 2},
            {"source": 2},
        ],
    )
    def test_bad_settings_are_named(self, lb, settings):
        with pytest.raises(ValueError, match=next(iter(settings))):
            lb.sample(noise(), QUESTION, **({"n": 2} | settings))

    def test_numbers_of_numpy_are_kept_as_pythons_own(self, lb):
        numbers = {"n": 2, "temperature": 0.5, "top_p": 0.75, "top_k": 9, "seed": 3}
        given = {name: np.array(number)[()] for name, number in numbers.items()}
        given |= {"max_new_tokens": np.uint8(4), "stop": np.array(["zz"])}
        found = lb.sample(noise(), QUESTION, **given)
        assert found.sampling == numbers | {"max_new_tokens": 4, "stop": ["zz"]}
        json.dumps(found.to_dict())
        found.to_arrow()


def cands_prompt(cands):
    return cands.prompt_ids.tolist()


class TestGenerate:
    def test_several_prompts_at_once_equal_one_at_a_time(self, lb):
        """Prompts of different length share a batch, padded on the left."""
        prompts = ["what?", "which of these answers is the most consistent one, and why?", "who"]
        together = lb.generate(noise(), prompts, max_new_tokens=6)
        apart = [lb.generate(noise(), p, max_new_tokens=6)[0] for p in prompts]
        assert together == apart
        assert lb.generate(noise(), []) == []

    def test_greedy_answers_equal_greedy_samples(self, lb):
        sampled = lb.sample(noise(), QUESTION, 1, temperature=0, max_new_tokens=6)[0]
        assert lb.generate(noise(), QUESTION, max_new_tokens=6) == [sampled.text.strip()]

    def test_sampling_has_a_seed_and_leaves_the_global_one_alone(self, lb):
        state = torch.random.get_rng_state()
        first, again, other = (
            lb.generate(noise(), QUESTION, max_new_tokens=8, temperature=1.5, seed=s)
            for s in (1, 1, 2)
        )
        assert first == again != other
        assert torch.equal(state, torch.random.get_rng_state())

    def test_the_whole_distribution_is_sampled_from_one_thread_at_a_time(self, lb, monkeypatch):
        """Transformers would keep the 50 likeliest tokens unless it is told not to."""
        asked, free = [], []

        def generate(input_ids, **settings):
            asked.append(settings)
            other = threading.Thread(target=lambda: free.append(lb.lock.acquire(blocking=False)))
            other.start()
            other.join()
            return torch.cat([input_ids, torch.full_like(input_ids[:, :1], 30)], 1)

        monkeypatch.setattr(lb.model, "generate", generate)
        lb.generate(noise(), QUESTION, max_new_tokens=7, temperature=1.5, top_p=0.8)
        lb.generate(noise(), QUESTION, max_new_tokens=7)
        wanted = {"do_sample": True, "temperature": 1.5, "top_p": 0.8, "top_k": 0}
        assert {name: asked[0][name] for name in wanted} == wanted
        assert asked[1]["do_sample"] is False
        assert {one["max_new_tokens"] for one in asked} == {7}
        assert free == [False, False]

    def test_answers_have_no_blanks_around_them(self, lb, monkeypatch):
        monkeypatch.setattr(
            lb.prompter.tokenizer, "batch_decode", lambda ids, **settings: [" a cat\n"] * len(ids)
        )
        assert lb.generate(noise(), ["what?", "who?"], max_new_tokens=2) == ["a cat"] * 2

    @pytest.mark.parametrize("prompts", [5, b"what?", ["what?", 5], [None]])
    def test_prompts_that_are_no_texts_are_named(self, lb, prompts):
        with pytest.raises(ValueError, match="prompts = "):
            lb.generate(noise(), prompts)

    def test_without_an_image(self, lb):
        assert len(lb.generate(None, ["hello", "who"], max_new_tokens=3)) == 2


class TestLoad:
    def test_a_folder(self, tmp_path, lb):
        lb.model.save_pretrained(tmp_path)
        lb.processor.save_pretrained(tmp_path)
        loaded = lookback.load(tmp_path)
        assert loaded.name == str(tmp_path)
        same(
            loaded.score(noise(), QUESTION, ["a red circle"])[0],
            lb.score(noise(), QUESTION, ["a red circle"])[0],
        )
        half = lookback.load(tmp_path, dtype="bfloat16", attn="eager")
        assert half.model.dtype == torch.bfloat16
        assert half.model.config.text_config._attn_implementation == "eager"

    def test_errors(self, lb, tmp_path):
        with pytest.raises(ValueError, match="needs its processor"):
            lookback.load(lb.model)
        with pytest.raises(TypeError, match="expected a transformers model, got Linear"):
            lookback.load(torch.nn.Linear(1, 1), lb.processor)
        with pytest.raises(OSError, match="nowhere"):
            lookback.load(tmp_path / "nowhere")

    def test_eager_below_the_tap_gives_the_same_signals(self, lb):
        before = lb.score(noise(), QUESTION, ["a red circle"])[0]
        try:
            eager = lookback.load(lb.model, lb.processor, attn="eager")
            assert eager.model.config.text_config._attn_implementation == "eager"
            same(eager.score(noise(), QUESTION, ["a red circle"])[0], before)
        finally:
            lb.model.set_attn_implementation("sdpa")


def test_threads_do_not_disturb_each_other(lb):
    expected = lb.score(noise(), QUESTION, ["a red circle"])[0]
    found = []

    def work(i):
        if i % 2:
            lb.sample(noise(i), QUESTION, 3, max_new_tokens=4, seed=i)
        found.append(lb.score(noise(), QUESTION, ["a red circle"])[0])

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    for one in found:
        same(one, expected)


def test_candidates_name_the_model(lb):
    assert lb.score(noise(), QUESTION, ["a"]).model == "LlavaForConditionalGeneration"
