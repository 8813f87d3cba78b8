"""Every built-in scorer against a literal reading, and the rules that all of them obey."""

import numpy as np
import pytest
from helpers import make_candidates

from lookback.scores.formula import lookback_score
from lookback.scores.registry import best_first, get_scorer, scorer, scorers

SLOW = {
    "lookback": lambda s: lookback_score(s.log_prob, s.lookback, 7.0, 1.5),
    "visual_lookback": lambda s: sum(s.lookback.tolist()) / len(s),
    "mean_log_prob": lambda s: sum(s.log_prob.tolist()) / len(s),
    "self_certainty": lambda s: sum(s.self_certainty.tolist()) / len(s),
    "entropy": lambda s: -sum(s.entropy.tolist()) / len(s),
}


def test_every_scorer_is_checked_here():
    assert set(scorers()) == set(SLOW)


@pytest.mark.parametrize("name", SLOW)
def test_scorer_equals_its_definition(name):
    cands = make_candidates()
    expected = [SLOW[name](c.signals) for c in cands]
    np.testing.assert_allclose(cands.scores(name), expected, rtol=1e-6)


def test_family_defaults_and_own_settings():
    cands = make_candidates()
    own = cands.scores("lookback", alpha=0.0, lam=0.0)
    np.testing.assert_allclose(own, cands.scores("mean_log_prob"), rtol=1e-12)
    generic = make_candidates(defaults={}).scores("lookback")
    np.testing.assert_allclose(generic, cands.scores("lookback", alpha=0.25, lam=1.25))


def test_rank_is_best_first_and_best_is_its_head():
    cands = make_candidates()
    ranked = cands.rank("self_certainty")
    assert [c.score for c in ranked] == sorted((c.score for c in ranked), reverse=True)
    assert cands.best("self_certainty").index == ranked[0].index
    assert cands[0].score is None  # ranking leaves the candidates alone


def test_an_empty_response_has_no_score_and_never_wins():
    cands = make_candidates(lengths=(2, 0, 2))
    ranked = cands.rank("entropy")
    assert ranked[-1].index == 1
    assert np.isnan(ranked[-1].score)
    np.testing.assert_allclose(cands.scores()[[0, 2]], make_candidates(lengths=(2, 2)).scores())
    with pytest.raises(ValueError, match="all are empty"):
        make_candidates(lengths=(0, 0)).best()


def test_ties_keep_their_order_and_nan_is_last():
    scores = np.array([1.0, np.nan, 2.0, 1.0, 2.0, -np.inf])
    assert best_first(scores).tolist() == [2, 4, 0, 3, 5, 1]


def test_unknown_names_list_the_known_ones():
    with pytest.raises(ValueError, match=r"no scorer named 'nope'; there are: .*lookback"):
        get_scorer("nope")
    with pytest.raises(TypeError, match="has no setting 'beta'; it has: alpha, lam"):
        make_candidates().rank("lookback", beta=1)


def test_a_users_own_scorer():
    @scorer("shortest-for-this-test")
    def shortest(batch):
        """Fewest tokens."""
        return -batch.lengths.astype(float)

    try:
        assert make_candidates().best("shortest-for-this-test").index == 1
        assert get_scorer("shortest-for-this-test").about == "Fewest tokens."
        with pytest.raises(ValueError, match="already a scorer"):
            scorer("lookback")(shortest)
    finally:
        from lookback.scores import registry

        del registry._SCORERS["shortest-for-this-test"]


def test_no_candidates_is_an_error():
    with pytest.raises(ValueError, match="no candidates"):
        make_candidates(lengths=()).rank()
