"""The bookkeeping of one recorded call: passes that add up, and passes that do not."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from transformers import (
    DynamicCache,
    EosTokenCriteria,
    MaxLengthCriteria,
    MaxTimeCriteria,
    StoppingCriteriaList,
)

from lookback.engines.transformers.generation import Endings, Generation
from lookback.signals import SIGNALS

IMAGE, VOCAB = 9, 12
PROMPT = torch.tensor([[9, 9, 1, 2]])


def generation(given=PROMPT, returned=1, **more):
    return Generation(given, returned, (IMAGE,), 1, more.pop("padding", None), **more)


def one_pass(call, ids, cache=None, *, share=0.5, scale=1.0, mask=None):
    """A pass of a model of one layer and head, without the model."""
    ids = torch.as_tensor(ids)
    call.before(ids, cache, mask)
    call.add(torch.full((len(ids), 1, 1), share))
    logits = torch.arange(float(VOCAB)).expand(len(ids), ids.shape[1], -1) * scale
    call.after(SimpleNamespace(logits=logits, past_key_values=cache))


def new_ids(call, prompt):
    """The rows of a prompt and their ids, none of which ended before the call did."""
    call.endings = Endings([])
    rows, tokens = len(call.prompt), call.sequences.shape[1] - call.prompt.shape[1]
    for _ in range(tokens):
        call.endings(torch.zeros(rows, 1), None)
    return [(row, ids) for row, ids, finish in call.responses(prompt) if finish == "length"]


def two_tokens():
    call, cache = generation(), FilledCache()
    one_pass(call, PROMPT, cache, share=0.25)
    cache.length = 4
    one_pass(call, [[5]], cache, share=0.75, scale=2.0)
    return call


class FilledCache(DynamicCache):
    """A cache that says how many tokens it has."""

    length = 0

    def get_seq_length(self, layer_idx=0):
        return self.length


@pytest.fixture(autouse=True)
def any_cache(monkeypatch):
    """Which kinds of caches are understood is tested with models."""
    monkeypatch.setattr("lookback.engines.transformers.generation.check_cache", lambda cache: None)


def test_each_token_has_the_signals_of_the_pass_before_it():
    call = two_tokens()
    assert call.finish(torch.tensor([[9, 9, 1, 2, 5, 3]]))
    found = dict(zip(SIGNALS, call.signals[..., 0], strict=True))
    np.testing.assert_allclose(found["visual_lookback"], [0.25, 0.75])
    rows = [torch.arange(float(VOCAB)) * scale for scale in (1, 2)]
    expected = [row.log_softmax(-1)[token] for row, token in zip(rows, (5, 3), strict=True)]
    np.testing.assert_allclose(found["log_prob"], expected, rtol=1e-5)
    assert new_ids(call, 0) == [(0, [5, 3])]


@pytest.mark.parametrize(
    "returned",
    [
        [[9, 9, 1, 2, 6, 3]],  # another token than a pass was given
        [[9, 9, 1, 3, 5, 3]],  # another prompt
        [[9, 9, 1, 2, 5, 3, 4]],  # more tokens than there were predictions
        [[9, 9, 1, 2]],  # none
        [[9, 9, 1, 2, 5, 3]] * 2,
        [9, 9, 1, 2, 5, 3],
    ],
)
def test_what_does_not_add_up_is_not_recorded(returned):
    assert not two_tokens().finish(torch.tensor(returned))


def test_what_was_returned_is_remembered_as_it_was():
    """Somebody may change it in place; it is then no longer what was returned."""
    call, out = two_tokens(), torch.tensor([[9, 9, 1, 2, 5, 3]])
    call.finish(out)
    assert call.returned_these(out.clone())
    out[0, -1] = 4
    assert not call.returned_these(out)
    assert new_ids(call, 0) == [(0, [5, 3])]


def test_the_prompt_is_remembered_as_it_was():
    ids = PROMPT.clone()
    call = generation(given=None)
    one_pass(call, ids)
    ids[0, 0] = 1
    assert call.prompt_ids(0) == [9, 9, 1, 2]


def test_logits_that_are_not_numbers_are_refused():
    call = generation()
    one_pass(call, PROMPT, scale=torch.nan)
    with pytest.raises(FloatingPointError, match="not finite"):
        call.finish(torch.tensor([[9, 9, 1, 2, 5]]))


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([[5, 6]], "neither a piece of the prompt nor the next token"),
        ([[2, 5, 6]], "neither a piece"),
    ],
)
def test_a_pass_of_several_new_tokens_is_refused(ids, message):
    call, cache = generation(), FilledCache()
    one_pass(call, PROMPT, cache)
    cache.length = 4
    with pytest.raises(ValueError, match=message):
        one_pass(call, ids, cache)


def test_a_pass_with_other_tokens_than_before_is_refused():
    """Without a cache every pass has the whole context."""
    call = generation()
    one_pass(call, PROMPT)
    one_pass(call, [[9, 9, 1, 2, 5]])
    with pytest.raises(ValueError, match="other tokens than the ones before it"):
        one_pass(call, [[9, 9, 1, 2, 6, 7]])


def test_a_pass_on_another_cache_is_somebody_elses():
    call, cache = generation(), FilledCache()
    one_pass(call, PROMPT, cache)
    call.before(torch.tensor([[7, 7, 7]]), FilledCache())
    call.after(SimpleNamespace(logits=None))
    cache.length = 4
    one_pass(call, [[5]], cache)
    assert call.finish(torch.tensor([[9, 9, 1, 2, 5, 3]]))


def test_a_cache_that_is_not_returned_is_still_the_calls_own():
    call, cache = generation(), FilledCache()
    one_pass(call, PROMPT, cache)
    cache.length = 4
    call.before(torch.tensor([[5]]), cache)
    call.add(torch.full((1, 1, 1), 0.5))
    call.after(SimpleNamespace(logits=torch.zeros(1, 1, VOCAB), past_key_values=None))
    call.before(torch.tensor([[7, 7, 7]]), FilledCache())  # somebody else's
    call.after(SimpleNamespace(logits=None))
    assert call.finish(torch.tensor([[9, 9, 1, 2, 5, 3]]))


def test_a_pass_that_broke_off_counts_for_nothing():
    call = generation()
    call.before(PROMPT, None)
    call.add(torch.ones(1, 1, 1))  # and then an error; the caller tries again
    one_pass(call, PROMPT, share=0.25)
    assert call.finish(torch.tensor([[9, 9, 1, 2, 5]]))
    assert call.signals[SIGNALS.index("visual_lookback")].item() == 0.25


def test_what_is_generated_is_never_source():
    call, cache = generation(), FilledCache()
    one_pass(call, PROMPT, cache)
    cache.length = 4
    call.before(torch.tensor([[IMAGE]]), cache)
    assert call.source.tolist() == [[True, True, False, False, False]]


def test_prompts_in_pieces_predict_nothing_before_their_end():
    call, cache = generation(), FilledCache()
    one_pass(call, PROMPT[:, :3], cache, share=0.125)
    cache.length = 3
    one_pass(call, PROMPT[:, 3:], cache, share=0.5)
    assert call.finish(torch.tensor([[9, 9, 1, 2, 5]]))
    assert call.signals[SIGNALS.index("visual_lookback")].tolist() == [[0.5]]


def test_rows_belong_to_the_prompt_they_were_made_from():
    """Two prompts, two sequences each: the rows of a prompt stand together."""
    given, padding = torch.tensor([[3, 9, 1], [9, 1, 2]]), torch.tensor([[0, 1, 1], [1, 1, 1]])
    for told in (padding, None):  # given to generate, or found by it and seen in the first pass
        call = generation(given, 2, padding=told)
        rows = given.repeat_interleave(2, 0)
        one_pass(call, rows, mask=padding.repeat_interleave(2, 0))
        out = torch.cat([rows, torch.tensor([[4], [5], [6], [7]])], 1)
        assert call.finish(out)
        assert [call.prompt_ids(i) for i in range(2)] == [[9, 1], [9, 1, 2]]
        assert new_ids(call, 0) == [(0, [4]), (1, [5])]
        assert new_ids(call, 1) == [(2, [6]), (3, [7])]
    with pytest.raises(ValueError, match="other tokens than generate was"):
        one_pass(generation(given, 2), given.repeat(2, 1))


def test_a_first_pass_knows_how_many_keys_there_are():
    """Whatever attends to others is not the decoder's own context."""
    call = generation()
    call.before(PROMPT, None)
    assert call.keys == 4
    cache = DynamicCache()
    call = generation()
    call.before(PROMPT, cache)
    assert call.keys == 4


def test_criteria_that_remember_say_what_they_would_say():
    """Criteria may answer for each row, or once for all; an end token counts before the length."""
    plain = [MaxLengthCriteria(3), EosTokenCriteria([7]), lambda ids, scores: ids[:, -1] == 8]
    plain += [lambda ids, scores: False]
    endings, rows = (
        Endings(plain),
        torch.tensor([[7, 7, 7], [1, 8, 7], [1, 2, 7], [1, 2, 8], [1] * 3]),
    )
    for end in (1, 2, 3):
        said = StoppingCriteriaList(plain)(rows[:, :end], None)
        assert torch.equal(endings(rows[:, :end], None), said)
    assert endings.of_rows(3) == [(0, "end"), (2, "stop"), (2, "end"), (3, "stop"), (3, "length")]
    assert endings.of_rows(2)[2] == (2, "length")  # steps that generate took back do not count
    assert endings.of_rows(4) is None


def test_who_runs_out_of_time_ends_by_length():
    endings = Endings([MaxTimeCriteria(max_time=0.0, initial_timestamp=1.0)])
    assert endings(torch.zeros(1, 1), None).tolist() == [True]
    assert endings.of_rows(1) == [(1, "length")]


def test_where_rows_ended_is_not_guessed():
    call = two_tokens()
    call.finish(torch.tensor([[9, 9, 1, 2, 5, 3]]))
    with pytest.raises(ValueError, match="stopping criteria"):
        call.responses(0)
