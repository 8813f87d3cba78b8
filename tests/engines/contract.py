"""What every engine must do, whatever runs the model: the promises of `lookback.engines.Engine`.

A test module gives an engine in a fixture `engine` and takes these classes over. Nothing here looks
inside an engine.
"""

import inspect
import json
from dataclasses import asdict, fields

import numpy as np
import pytest
from engines.hearing import Hearing
from engines.reference import noise

from lookback.engines import ABILITIES, AbilityError, Engine, Identity, optional_settings
from lookback.looks.look import Look
from lookback.scores.base import scorers
from lookback.signals import SIGNALS, Candidates
from lookback.steering.pruning import pruned_at, pruning_of

QUESTION = "what is in the picture?"
METHODS = {name for name in ABILITIES if hasattr(Engine, name)}
DRAW = {"temperature": 1.2, "top_p": 0.9, "max_new_tokens": 8, "seed": 42}


def chat(*images, question=QUESTION, system=None):
    """Messages: a system turn if there is one, then a user's turn with images and a question."""
    parts = [{"type": "image", "image": image} for image in images]
    turns = [] if system is None else [{"role": "system", "content": system}]
    return [*turns, {"role": "user", "content": [*parts, {"type": "text", "text": question}]}]


def same(first, second):
    assert [c.token_ids.tolist() for c in first] == [c.token_ids.tolist() for c in second]
    assert [c.text for c in first] == [c.text for c in second]
    for a, b in zip(first, second, strict=True):
        for name in SIGNALS:
            np.testing.assert_allclose(getattr(a, name), getattr(b, name), atol=1e-5, rtol=1e-4)


class Contract(Hearing):
    def test_its_methods_have_the_contracts_signatures(self, engine):
        for name in METHODS:
            ours = inspect.signature(getattr(type(engine), name)).parameters.values()
            theirs = inspect.signature(getattr(Engine, name)).parameters.values()
            assert [(p.name, p.kind, p.default) for p in ours] == [
                (p.name, p.kind, p.default) for p in theirs
            ]

    def test_it_says_who_it_is(self, engine):
        identity = engine.identity()
        assert isinstance(identity, Identity)
        assert identity.model == engine.name
        assert all(asdict(identity)[field.name] is not None for field in fields(Identity)[:3])
        json.dumps(asdict(identity))
        assert engine.identity() == identity

    def test_what_it_cannot_do_it_refuses_by_name(self, engine):
        assert {"sample", "score"} & engine.abilities
        assert engine.abilities <= set(ABILITIES)
        for ability in METHODS - engine.abilities:
            with pytest.raises(AbilityError, match=rf"{ability}\(\) needs .* {engine.name!r}"):
                getattr(engine, ability)()

    def test_prompts_are_kept_and_counted_or_it_has_no_such_cache(self, engine):
        plain = engine.score(noise(), QUESTION, ["red"])
        counts = engine.keep_prefixes(2)
        try:
            for _ in range(2):
                same(engine.score(noise(), QUESTION, ["red"]), plain)
            assert counts is None or (counts.new, counts.same) == (1, 1)
            assert counts is None or counts.saved > 0
            with pytest.raises(ValueError, match="most = -1"):
                engine.keep_prefixes(-1)
        finally:
            engine.keep_prefixes(0)

    def test_signals_by_layer_are_told_or_refused(self, engine):
        drawn = engine.sample(noise(), QUESTION, 4, **DRAW)
        assert {c.by_layer for c in drawn} == {None}
        asked = {
            "sample": lambda: engine.sample(noise(), QUESTION, 4, **DRAW, by_layer=True),
            "score": lambda: engine.score(noise(), QUESTION, list(drawn.scorable()), by_layer=True),
        }
        for ask in asked.values():
            if "by_layer" not in engine.abilities:
                with pytest.raises(AbilityError, match=rf"by_layer=True needs .* {engine.name!r}"):
                    ask()
                continue
            found = ask()
            same(found.scorable(), drawn.scorable())  # nothing else is changed by it
            assert {c.by_layer.shape[0] - len(c.tokens) for c in found} == {0}
            assert len({c.by_layer.shape[1] for c in found}) == 1
            assert all(((c.by_layer >= 0) & (c.by_layer <= 1)).all() for c in found)

    def test_candidates_are_pruned_by_the_rule_or_it_is_refused(self, engine):
        def ask(prune=None):
            return engine.sample(noise(), QUESTION, 6, **DRAW, prune=prune)

        schedule = [(2, 3), (3, 1)]
        if "prune" not in engine.abilities:
            with pytest.raises(AbilityError, match=rf"prune= needs .* {engine.name!r}"):
                ask(schedule)
            return
        whole, pruned = ask(), ask(schedule)
        signals = [np.stack([getattr(c, name) for name in SIGNALS]) for c in whole]
        drawn = [len(c.tokens) + (c.finish == "end") for c in whole]
        rule = pruning_of(schedule, 6, engine.family.defaults)
        ends = pruned_at(rule, signals, drawn)
        assert any(ends)
        for a, b, end in zip(whole, pruned, ends, strict=True):
            assert b.finish == (a.finish if end is None else "pruned")
            assert b.token_ids.tolist() == a.token_ids[:end].tolist()
            np.testing.assert_allclose(b.log_prob, a.log_prob[:end], atol=1e-5, rtol=1e-4)
        assert pruned.sampling["prune"]["schedule"] == [[2, 3], [3, 1]]
        with pytest.raises(ValueError, match="prune = 'third'"):
            ask("third")

    def test_forks_begin_as_their_parents(self, engine):
        if "search" not in engine.abilities:
            return  # that it is refused by name is tested for every method
        settings = DRAW | {"temperature": 1.0}
        found = engine.search(noise(), QUESTION, 6, 2, 3, **settings)
        forks = [c for c in found if c.parent is not None]
        assert forks
        for c in forks:
            parent = found[c.parent].token_ids[: c.forked_at]
            assert c.token_ids[: c.forked_at].tolist() == parent.tolist()
        same(found, engine.search(noise(), QUESTION, 6, 2, 3, **settings))

    def test_five_are_the_first_five_of_seven(self, engine):
        few = engine.sample(noise(), QUESTION, 5, **DRAW)
        many = engine.sample(noise(), QUESTION, 7, **DRAW)
        assert (len(few), len(many)) == (5, 7)
        same(few, many[:5])
        assert [c.index for c in many] == list(range(7))
        other = engine.sample(noise(), QUESTION, 5, **(DRAW | {"seed": 43}))
        assert [c.text for c in other] != [c.text for c in few]

    def test_many_questions_are_answered_as_each_alone(self, engine):
        asked = [
            {"image": noise(1), "question": QUESTION},
            {"image": b"no image", "question": QUESTION},
            {"messages": chat(noise(2), question="who is it?"), "n": 2, "seed": 5},
            {"image": [noise(1), noise(2)], "question": "where?", "source": "image:1"},
        ]
        seen = []
        settings = DRAW | {"n": 3, "progress": lambda *x: seen.append(x)}
        found = engine.sample_many(asked, **settings, return_exceptions=True)
        assert seen[-1] == (4, 4)
        assert isinstance(found[1], ValueError)
        settings.pop("progress")
        for one, together in ((asked[i], found[i]) for i in (0, 2, 3)):
            alone = engine.sample(**(settings | one))
            same(together, alone)
            assert together.sampling == alone.sampling
            assert (together.messages, together.source) == (alone.messages, alone.source)
        with pytest.raises(ValueError, match="image"):
            engine.sample_many(asked, **settings)
        assert engine.sample_many([], **settings) == []

    def test_candidates_carry_what_was_asked(self, engine):
        found = engine.sample(noise(), QUESTION, 2, **DRAW)
        assert isinstance(found, Candidates)
        assert (found.question, found.model) == (QUESTION, engine.name)
        assert found.defaults == engine.family.defaults
        assert found.sampling["seed"] == 42
        assert found.asked.engine is engine
        assert len(found.asked.conversation.images) == 1
        assert found.messages[-1]["role"] == "user"
        assert found.messages[-1]["content"][-1] == {"type": "text", "text": QUESTION}
        assert found.messages[-1]["content"][0]["image"].startswith("sha256:")
        back = Candidates.from_arrow(found.to_arrow())
        assert back.messages == found.messages
        json.dumps(found.to_dict())

    def test_every_signal_is_in_its_range(self, engine):
        for c in engine.sample(noise(), QUESTION, 6, **DRAW):
            assert (c.log_prob <= 0).all()
            assert ((c.visual_lookback > 0) & (c.visual_lookback < 1)).all()
            assert (c.self_certainty >= 0).all()
            assert (c.entropy >= 0).all()
            assert len(c.tokens) == len(c.token_ids) <= DRAW["max_new_tokens"]

    def test_what_was_sampled_scores_the_same(self, engine):
        drawn = engine.sample(noise(), QUESTION, 6, **DRAW).scorable()
        given = engine.score(noise(), QUESTION, list(drawn))
        same(drawn, given)
        ids = engine.score(noise(), QUESTION, [c.token_ids.tolist() for c in drawn])
        same(drawn, ids)
        assert {c.finish for c in given} == {"given"}

    def test_texts_stay_as_they_were_given(self, engine):
        texts = ["a red dog", "two"]
        found = engine.score(noise(), QUESTION, texts)
        assert [c.text for c in found] == texts
        (alone,) = engine.score(noise(), QUESTION, texts[1])
        np.testing.assert_allclose(alone.log_prob, found[1].log_prob, atol=1e-5)

    def test_messages_say_the_same_as_image_and_question(self, engine):
        for plain, spoken in (
            (
                engine.sample(noise(), QUESTION, 3, **DRAW),
                engine.sample(messages=chat(noise()), n=3, **DRAW),
            ),
            (
                engine.score([noise(1), noise(2)], QUESTION, ["red", "blue"]),
                engine.score(messages=chat(noise(1), noise(2)), responses=["red", "blue"]),
            ),
        ):
            same(plain, spoken)
            assert plain.messages == spoken.messages

    def test_a_conversation_has_several_turns(self, engine):
        first = chat(noise(), question="who is it?")
        later = [
            *first,
            {"role": "assistant", "content": "a dog"},
            {"role": "user", "content": QUESTION},
        ]
        found = engine.score(messages=later, responses=["red"])
        assert (found.question, len(found.messages)) == (QUESTION, 3)
        alone = engine.score(noise(), QUESTION, ["red"])
        assert not np.allclose(found[0].log_prob, alone[0].log_prob)
        urls = [{"type": "image_url", "image_url": {"url": data_url(noise())}}]
        as_url = [{"role": "user", "content": [*urls, {"type": "text", "text": QUESTION}]}]
        same(engine.score(messages=as_url, responses=["red"]), alone)

    def test_the_source_can_be_one_of_several_images(self, engine):
        images = [noise(1), noise(2)]
        both = engine.score(images, QUESTION, ["red dog"])
        parts = [engine.score(images, QUESTION, ["red dog"], source=f"image:{i}") for i in (0, 1)]
        for part in parts:
            np.testing.assert_allclose(part[0].log_prob, both[0].log_prob, atol=1e-5)
            assert (part[0].visual_lookback > 0).all()
        assert [part.source for part in parts] == ["image:0", "image:1"]
        assert not np.allclose(parts[0][0].visual_lookback, parts[1][0].visual_lookback)
        with pytest.raises(ValueError, match=r"image:2.*image:0, image:1"):
            engine.score(images, QUESTION, ["red"], source="image:2")

    def test_without_a_source_it_says_so(self, engine):
        for ask in (
            lambda **more: engine.score(None, QUESTION, ["red"], **more),
            lambda **more: engine.sample(None, QUESTION, 2, **DRAW, **more),
            lambda **more: engine.score(messages=chat(), responses=["red"], **more),
        ):
            with pytest.raises(ValueError, match="this prompt has no source"):
                ask()
            blind = ask(source="none")
            assert all((c.visual_lookback == 0).all() for c in blind)
            assert blind.source == "none"

    def test_half_a_character_is_refused_and_shown(self, engine):
        half = "what \ud800?"
        with pytest.raises(ValueError, match="ud800"):
            engine.sample(noise(0), half, 1, **DRAW)
        with pytest.raises(ValueError, match="ud800"):
            engine.sample(messages=chat(noise(0), question=half), n=1, **DRAW)
        with pytest.raises(ValueError, match=r"response 1.*ud800"):
            engine.score(noise(0), QUESTION, ["a cup", half])

    def test_one_way_of_asking_at_a_time(self, engine):
        with pytest.raises(TypeError, match="not both"):
            engine.score(noise(), QUESTION, ["red"], messages=chat(noise()))
        with pytest.raises(TypeError, match="nothing is asked"):
            engine.score(noise(), responses=["red"])

    @pytest.mark.parametrize(
        ("responses", "message"),
        [
            ([], "no responses"),
            (["red", " "], "response 1"),
            ([[]], "response 0 is empty"),
            ([[1.0, 2.9]], r"response 0: .* 1\.0 "),
            (["red", [True]], "response 1: .* True "),
            ([["1", "2"]], "response 0: .* '1' "),
            ([np.array([1.0])], r"response 0: .* 1\.0 "),
            ([np.array([True])], "response 0: .* True "),
            ([[[1, 2]]], r"response 0: .* \[1, 2\] "),
            (np.ones((1, 1, 2), int), r"response 0: .* \[1, 1\] "),
            ([1, 2], "response 0 is 1: "),
            (np.array([1, 2]), "response 0 is 1: "),
            ([None], "response 0 is None: "),
            ([b"red"], "response 0 is b'red': "),
            (b"red", "responses = b'red': "),
            ({"red": 1}, "responses = {'red': 1}: "),
            (None, "responses = None: "),
            ([[-1]], "-1 "),
            ([[2**40]], f"{2**40} "),
        ],
    )
    def test_bad_responses_are_named(self, engine, responses, message):
        with pytest.raises(ValueError, match=message):
            engine.score(noise(), QUESTION, responses)
        if "knockout" in engine.abilities:
            with pytest.raises(ValueError, match=message):
                engine.knockout(noise(), QUESTION, responses, layers=(0, 2), share=0.5)

    def test_token_ids_are_lists_tuples_or_arrays_of_whole_numbers(self, engine):
        (listed,) = engine.score(noise(), QUESTION, [[5, 7]])
        for ids in ((5, 7), np.array([5, 7]), np.array([5, 7], np.uint8), [np.int64(5), 7]):
            same(engine.score(noise(), QUESTION, [ids]), [listed])
        same(engine.score(noise(), QUESTION, np.array([[5, 7], [5, 7]])), [listed, listed])

    @pytest.mark.parametrize(
        "setting", [{"n": 0}, {"temperature": -1.0}, {"top_p": 2.0}, {"max_new_tokens": 0}]
    )
    def test_bad_settings_are_named(self, engine, setting):
        with pytest.raises(ValueError, match=next(iter(setting))):
            engine.sample(noise(), QUESTION, **({"n": 2} | setting))

    def test_progress_is_told(self, engine):
        seen = []
        engine.score(noise(), QUESTION, ["red", "blue"], progress=lambda *x: seen.append(x))
        assert seen[-1] == (2, 2)
        seen.clear()
        engine.sample(noise(), QUESTION, 2, **DRAW, progress=lambda *x: seen.append(x))
        assert seen

    def test_it_answers_prompts(self, engine):
        if "generate" not in engine.abilities:
            pytest.skip(f"{engine.name} does not answer prompts")
        prompts = ["what?", "which of these is the most consistent one?"]
        replies = engine.generate(noise(), prompts, max_new_tokens=6)
        assert len(replies) == 2
        assert all(isinstance(reply, str) for reply in replies)
        assert engine.generate(noise(), prompts[1], max_new_tokens=6) == replies[1:]
        spoken = engine.generate(messages=chat(noise(), question=prompts[1]), max_new_tokens=6)
        assert spoken == replies[1:]
        assert engine.generate(noise(), []) == []

    def test_where_a_response_looked(self, engine):
        if "look" not in engine.abilities:
            pytest.skip(f"{engine.name} does not tell where a response looked")
        images = [noise(1), noise(2)]
        by_layer = optional_settings(engine, {"by_layer": "by_layer" in engine.abilities})
        (scored,) = engine.score(images, QUESTION, "red dog", **by_layer)
        seen = []
        found = engine.look(images, QUESTION, "red dog", progress=lambda *x: seen.append(x))
        assert isinstance(found, Look)
        assert seen[-1] == (len(scored.tokens), len(scored.tokens))
        assert (found.text, found.tokens) == ("red dog", scored.tokens)
        assert found.token_ids.tolist() == scored.token_ids.tolist()
        assert (found.weights >= 0).all()
        assert found.layers[0] == 0
        np.testing.assert_allclose(found.weights.sum(1), scored.visual_lookback, atol=1e-6)
        assert [one.name for one in found.pictures] == ["image:0", "image:1"]
        assert [one.image.tobytes() for one in found.pictures] == [x.tobytes() for x in images]
        columns = np.concatenate([one.columns for one in found.pictures])
        assert columns.tolist() == list(range(found.source))
        shares = scored.by_layer if by_layer else np.empty((len(scored.tokens), 0))
        assert found.layers[1] == shares.shape[1] or not by_layer
        for layer, share in enumerate(shares.T):
            some = engine.look(images, QUESTION, scored, layers=(layer, layer + 1))
            np.testing.assert_allclose(some.weights.sum(1), share, atol=1e-6)
        spoken = engine.look(messages=chat(*images), response=scored)
        np.testing.assert_allclose(spoken.weights, found.weights, atol=1e-6)
        json.dumps(found.to_dict())

    def test_where_it_looked_at_one_image_and_for_another_question(self, engine):
        if "look" not in engine.abilities:
            pytest.skip(f"{engine.name} does not tell where a response looked")
        images = [noise(1), noise(2)]
        (scored,) = engine.score(images, QUESTION, "red dog", source="image:1")
        found = engine.look(
            images, QUESTION, "red dog", source="image:1", relative_to="who is there?"
        )
        np.testing.assert_allclose(found.weights.sum(1), scored.visual_lookback, atol=1e-6)
        assert [one.name for one in found.pictures] == ["image:1"]
        other = engine.look(images, "who is there?", scored.token_ids, source="image:1")
        np.testing.assert_allclose(found.baseline, other.weights, atol=1e-6)
        assert other.baseline is None

    def test_what_cannot_be_looked_at_is_refused(self, engine):
        if "look" not in engine.abilities:
            pytest.skip(f"{engine.name} does not tell where a response looked")
        for arguments, error in (
            ({"image": None}, "this prompt has no source"),
            ({"source": "none"}, "source"),
            ({"response": " "}, "empty"),
            ({"response": []}, "empty"),
            ({"response": ["red", "dog"]}, "one response, got 2"),
            ({"response": [[1], [2]]}, "one response, got 2"),
            ({"response": [1.5]}, r"1\.5 "),
            ({"response": [True]}, "True "),
            ({"response": 5}, "is 5: "),
            ({"layers": (0, 99)}, "layers 0-99"),
            ({"layers": (1, 1)}, "layers 1-1"),
        ):
            given = {"image": noise(), "question": QUESTION, "response": "red"} | arguments
            with pytest.raises(ValueError, match=error):
                engine.look(**given)

    def test_what_a_response_looks_at_is_hidden_from_it_or_from_all(self, engine):
        if "knockout" not in engine.abilities:
            pytest.skip(f"{engine.name} hides nothing")
        seen = engine.score(noise(), QUESTION, ["red dog", "two"])
        told, found = [], {}
        for rows in ("response", "all"):
            found[rows] = engine.knockout(
                noise(),
                QUESTION,
                list(seen),
                layers=(0, 2),
                share=0.5,
                rows=rows,
                progress=lambda *count: told.append(count),
            )
            assert [c.token_ids.tolist() for c in found[rows]] == [
                c.token_ids.tolist() for c in seen
            ]
            assert told[-1] == (2, 2)
            again = engine.knockout(
                messages=chat(noise()), responses=list(seen), layers=(0, 2), share=0.5, rows=rows
            )
            same(again, found[rows])
        (alone,) = engine.knockout(noise(), QUESTION, "red dog", layers=(0, 2), share=0.5)
        assert alone.token_ids.tolist() == seen[0].token_ids.tolist()  # not one for each letter
        for a, b, c in zip(seen, *found.values(), strict=True):
            assert not np.allclose(a.entropy, b.entropy, atol=1e-7)
            assert not np.allclose(b.entropy, c.entropy, atol=1e-7)
        with pytest.raises(ValueError, match="rows = 'none'"):
            engine.knockout(noise(), QUESTION, list(seen), layers=(0, 2), share=0.5, rows="none")

    def test_every_scorer_works_or_names_what_is_missing(self, engine):
        cands = engine.score(noise(), QUESTION, ["red dog", "two", "blue"])
        settings = {"oracle": {"quality": [0, 1, 0]}, "clipscore": {"clip": "embedded"}}
        settings |= {"usc": {"max_new_tokens": 2}, "judge": {"max_new_tokens": 2}}
        settings["vauq"] = {"layers": (0, 2), "k": 0.5}
        for name, scorer in scorers().items():
            lacking = set(scorer.uses) - engine.abilities
            if lacking:
                with pytest.raises(AbilityError, match=rf"scorer '{name}' needs an engine that"):
                    cands.scores(name)
            else:
                assert np.isfinite(cands.scores(name, **settings.get(name, {}))).all()


def data_url(image):
    import base64
    import io

    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"
