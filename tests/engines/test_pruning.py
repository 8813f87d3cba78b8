"""Pruning and search while candidates are written, on real classes and the embedded model."""

import numpy as np
import pytest
import torch
from engines.reference import noise
from engines.rounding import assert_same_numbers
from zoo import build

import lookback
from lookback.benchmarks.base import get_benchmark
from lookback.engines.common.continuations import Continuation, tokens_drawn, without_repeated
from lookback.engines.common.logits import streams
from lookback.engines.transformers.decoding.batch import MULTIPLE
from lookback.engines.transformers.decoding.decoder import Decoder
from lookback.signals import SIGNALS, Candidates
from lookback.steering.pruning import Pruning, pruned_at, pruning_of

QUESTION = "what is in the picture?"
DRAW = {"temperature": 1.0, "top_p": 0.95, "max_new_tokens": 24, "seed": 5}
SCHEDULE = [(4, 7), (9, 3)]


@pytest.fixture(scope="module")
def embedded():
    return lookback.load()


@pytest.fixture(scope="module")
def scene():
    (item,) = get_benchmark("scenes-caption").items("test", limit=1)
    return item


def stack(candidate):
    return np.stack([getattr(candidate, name) for name in SIGNALS])


def drawn_counts(cands):
    return [len(c.tokens) + (c.finish == "end") for c in cands]


def assert_pruned(whole, pruned, schedule):
    """Nothing but the ends that the rule foresees makes a difference, to the last bit."""
    rule = pruning_of(schedule, len(whole), whole.defaults)
    ends = pruned_at(rule, [stack(c) for c in whole], drawn_counts(whole))
    for a, b, end in zip(whole, pruned, ends, strict=True):
        assert b.finish == (a.finish if end is None else "pruned")
        length = len(a.tokens) if end is None else end
        assert b.token_ids.tolist() == a.token_ids[:length].tolist()
        assert_same_numbers(stack(b), stack(a)[:, :length])
    assert pruned.sampling["tokens_drawn"] == sum(
        count if end is None else end for count, end in zip(drawn_counts(whole), ends, strict=True)
    )
    return ends


@pytest.mark.parametrize("schedule", ["half", [(8, 4), (20, 2)], [(5, 1)]])
def test_survivors_are_the_same_to_the_last_bit(embedded, scene, schedule):
    settings = {"seed": 3, "max_new_tokens": 40}
    whole = embedded.sample(scene.image, scene.question, 25, **settings)
    pruned = embedded.sample(scene.image, scene.question, 25, prune=schedule, **settings)
    ends = assert_pruned(whole, pruned, schedule)
    assert {None} < set(ends)


def test_several_threads_change_no_bit_either(embedded, scene):
    """Few steps: on a busy machine threads wait for each other."""
    settings = {"seed": 3, "max_new_tokens": 12}
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        whole = embedded.sample(scene.image, scene.question, 11, **settings)
        pruned = embedded.sample(scene.image, scene.question, 11, prune=[(2, 3)], **settings)
    finally:
        torch.set_num_threads(before)
    assert set(assert_pruned(whole, pruned, [(2, 3)])) == {2, None}


def test_a_smaller_draw_is_the_same_to_the_last_bit(embedded, scene):
    many = embedded.sample(scene.image, scene.question, 11, seed=3, max_new_tokens=20)
    few = embedded.sample(scene.image, scene.question, 3, seed=3, max_new_tokens=20)
    for a, b in zip(many, few, strict=False):
        assert_same_numbers(stack(a), stack(b))


@pytest.mark.parametrize("name", ["llava", "qwen2_5_vl", "gemma3", "internvl", "qwen3_5", "llama4"])
def test_pruning_changes_nothing_but_ends(name):
    """Windows, merged positions, layers with a state: what leaves the batch takes nothing along."""
    zoo = build(name)
    lb = lookback.load(zoo.model, zoo.processor)
    whole = lb.sample(noise(), QUESTION, 10, **DRAW)
    pruned = lb.sample(noise(), QUESTION, 10, prune=SCHEDULE, **DRAW)
    rule = pruning_of(SCHEDULE, 10, whole.defaults)
    ends = pruned_at(rule, [stack(c) for c in whole], drawn_counts(whole))
    assert {4, 9, None} == set(ends)
    for a, b, end in zip(whole, pruned, ends, strict=True):
        assert b.finish == (a.finish if end is None else "pruned")
        length = len(a.tokens) if end is None else end
        assert b.token_ids.tolist() == a.token_ids[:length].tolist()
        if name == "llama4":  # an expert has as many rows as it is given
            np.testing.assert_allclose(stack(b), stack(a)[:, :length], atol=1e-5, rtol=1e-5)
        else:
            assert_same_numbers(stack(b), stack(a)[:, :length])


def test_what_is_pruned_leaves_the_batch(embedded, scene, monkeypatch):
    rows = []
    forward = Decoder.forward

    def counted(self, ids, *args, **kwargs):
        rows.append(len(ids))
        return forward(self, ids, *args, **kwargs)

    monkeypatch.setattr(Decoder, "forward", counted)
    schedule = [(4, 16), (8, 8), (12, 1)]
    embedded.sample(scene.image, scene.question, 25, prune=schedule, seed=3, max_new_tokens=40)
    assert rows[:12] == [32] * 3 + [16] * 4 + [8] * 4 + [MULTIPLE]
    assert set(rows[12:]) == {MULTIPLE}


@pytest.mark.parametrize(
    ("after", "more"), [(20, {}), (20, {"keep_end": True}), (9, {"stop": [" and", "."]})]
)
def test_finished_ones_compete_by_the_score_they_end_with(embedded, scene, after, more):
    """What the rule is told of them is what `rank` says in the end: no end token, no stop text."""
    told = []
    rule = Pruning([(after, 6)], watch=lambda tokens, scores, decision: told.append(scores))
    pruned = embedded.sample(
        scene.image, scene.question, 25, prune=rule, seed=3, max_new_tokens=40, **more
    )
    (scores,) = told
    final = pruned.scores("lookback")
    ended = [
        i
        for i, c in enumerate(pruned)
        if c.finish in ("end", "stop") and len(c.tokens) < after - 1 and c.scorable
    ]
    assert len(ended) > 2
    for i in ended:
        assert scores[i] == pytest.approx(final[i], abs=1e-12)


def test_pruned_candidates_have_no_score_and_are_ranked_last(embedded, scene):
    cands = embedded.sample(
        scene.image, scene.question, 12, prune=[(6, 3)], seed=3, max_new_tokens=30
    )
    gone = [c.index for c in cands if c.finish == "pruned"]
    assert 0 < len(gone) < 12
    assert np.isnan(cands.scores("lookback")[gone]).all()
    assert np.isnan(cands.scores("majority")[gone]).all()
    assert {c.index for c in cands.rank("mean_log_prob")[-len(gone) :]} == set(gone)
    assert cands.best("lookback").index not in gone
    assert [c.index for c in cands.scorable()] == [i for i in range(12) if i not in gone]
    again = Candidates.from_arrow(cands.to_arrow())
    np.testing.assert_array_equal(again.scores(), cands.scores())
    assert cands.sampling["prune"] == {
        "scorer": "lookback",
        "settings": dict(cands.defaults),
        "schedule": [[6, 3]],
    }


def test_pruning_works_where_looks_are_seldom(embedded, scene, monkeypatch):
    settings = {"seed": 3, "max_new_tokens": 40, "prune": [(6, 9), (11, 3)]}
    often = embedded.sample(scene.image, scene.question, 12, **settings)
    monkeypatch.setattr(embedded.decoder, "read_every", 8)
    seldom = embedded.sample(scene.image, scene.question, 12, **settings)
    assert [c.finish for c in often] == [c.finish for c in seldom]
    for a, b in zip(often, seldom, strict=True):
        assert_same_numbers(stack(a), stack(b))


def search(lb, image, question, **settings):
    defaults = {"width": 9, "keep": 3, "every": 5, "seed": 5, "max_new_tokens": 24}
    return lb.search(image, question, **(defaults | settings))


def assert_tree(cands):
    """A fork begins as its parent does, to the last bit, and nobody says what another says."""
    forks = [c for c in cands if c.parent is not None]
    for c in forks:
        parent = cands[c.parent]
        assert parent.index == c.parent != c.index
        assert c.token_ids[: c.forked_at].tolist() == parent.token_ids[: c.forked_at].tolist()
        np.testing.assert_array_equal(stack(c)[:, : c.forked_at], stack(parent)[:, : c.forked_at])
    said = [tuple(c.token_ids) for c in cands if c.finish != "pruned"]
    assert len(set(said)) == len(said)
    assert [c.index for c in cands] == list(range(len(cands)))
    return forks


@pytest.mark.parametrize("name", ["llava", "qwen2_5_vl", "gemma3", "internvl", "qwen3_5", "llama4"])
def test_what_was_searched_scores_the_same(name):
    """Each fork goes on with its parent's keys and states: scored anew it has the same numbers."""
    zoo = build(name)
    lb = lookback.load(zoo.model, zoo.processor)
    found = search(lb, noise(), QUESTION, temperature=1.0)
    forks = assert_tree(found)
    assert {c.forked_at for c in forks} >= {5, 10}
    filled = [c for c in found if len(c.tokens)]
    for a, b in zip(filled, lb.score(noise(), QUESTION, filled), strict=True):
        np.testing.assert_allclose(stack(a), stack(b), atol=1e-5, rtol=1e-4)


def test_forks_draw_from_random_streams_of_their_own(embedded, scene, monkeypatch):
    """Number i draws from the stream (seed, i): no two numbers of a search share one."""
    numbers = []

    def counted(seed, n, steps, first=0):
        numbers.extend(range(first, first + n))
        return streams(seed, n, steps, first)

    monkeypatch.setattr("lookback.engines.transformers.decoding.batch.streams", counted)
    found = search(embedded, scene.image, scene.question)
    assert any(c.parent is not None for c in found)
    assert numbers == list(range(len(numbers)))


def test_a_search_is_fixed_by_its_seed_and_tells_its_tree(embedded, scene):
    first = search(embedded, scene.image, scene.question, max_new_tokens=40)
    again = search(embedded, scene.image, scene.question, max_new_tokens=40)
    other = search(embedded, scene.image, scene.question, max_new_tokens=40, seed=6)
    assert [c.token_ids.tolist() for c in first] == [c.token_ids.tolist() for c in again]
    assert [c.token_ids.tolist() for c in first] != [c.token_ids.tolist() for c in other]
    assert assert_tree(first)
    assert first.sampling["search"]["width"] == 9
    assert first.sampling["tokens_drawn"] >= sum(
        len(c.tokens) - (c.forked_at or 0) + (c.finish == "end") for c in first
    )
    stored = Candidates.from_arrow(first.to_arrow())
    assert [(c.parent, c.forked_at) for c in stored] == [(c.parent, c.forked_at) for c in first]
    plain = first.to_dict()["candidates"]
    assert [c.get("parent") for c in plain] == [c.parent for c in first]
    assert first.best("lookback").finish != "pruned"


def test_a_search_begins_as_a_draw_does(embedded, scene):
    """Until the first checkpoint candidate i is candidate i of a draw with the same seed."""
    drawn = embedded.sample(scene.image, scene.question, 9, seed=5, max_new_tokens=24)
    found = search(embedded, scene.image, scene.question)
    firsts = [c for c in found if c.parent is None]
    starts = {tuple(c.token_ids[:5]) for c in drawn}
    assert {tuple(c.token_ids[:5]) for c in firsts} == starts


def test_by_layer_goes_with_forks(embedded, scene):
    found = search(embedded, scene.image, scene.question, by_layer=True)
    for c in found:
        np.testing.assert_allclose(c.by_layer.mean(1), c.visual_lookback, atol=1e-6)
    for c in (c for c in found if c.parent is not None):
        parent = found[c.parent]
        np.testing.assert_array_equal(c.by_layer[: c.forked_at], parent.by_layer[: c.forked_at])


def test_every_scorer_on_signals_can_guide(embedded, scene):
    guided = {
        scorer: search(embedded, scene.image, scene.question, scorer=scorer)
        for scorer in ("mean_log_prob", "visual_lookback", "self_certainty")
    }
    texts = {scorer: [c.text for c in cands] for scorer, cands in guided.items()}
    assert texts["mean_log_prob"] != texts["visual_lookback"]
    with pytest.raises(ValueError, match="'majority' cannot judge"):
        search(embedded, scene.image, scene.question, scorer="majority")


def one(ids, finish="end", parent=None, forked_at=None):
    return Continuation(ids, np.zeros((4, len(ids)), np.float32), finish, None, parent, forked_at)


def test_repeated_ones_are_left_out_and_their_forks_find_another_parent():
    found = [
        one([1, 2, 3]),
        one([1, 2], "merged"),  # as 0 at a checkpoint, after 4 was forked from it
        one([5], "pruned"),
        one([1, 2, 3]),  # as 0 in the end
        one([1, 7], parent=1, forked_at=1),
        one([1, 2, 9], parent=3, forked_at=2),
        one([5, 6], parent=2, forked_at=1),
    ]
    kept = without_repeated(found)
    assert [c.token_ids for c in kept] == [[1, 2, 3], [5], [1, 7], [1, 2, 9], [5, 6]]
    assert [c.parent for c in kept] == [None, None, 0, 0, 1]
    assert tokens_drawn(found) == 3 + 2 + 1 + 3 + 1 + 1 + 1


def test_what_was_pruned_does_not_stand_for_one_that_says_the_same():
    found = [one([1, 2], "pruned"), one([1, 2]), one([1, 2], "pruned")]
    assert [c.finish for c in without_repeated(found)] == ["pruned", "end", "pruned"]
