"""Every built-in scorer against a literal reading, and the rules that all of them obey."""

import math
import re
from dataclasses import replace

import numpy as np
import pytest
from helpers import make_candidates

from lookback.registry import SettingError
from lookback.scores.base import (
    NEEDS,
    SCORERS,
    best_first,
    get_scorer,
    scorer,
    scorers,
)
from lookback.scores.batch import SignalBatch
from lookback.scores.formula import lookback_score
from lookback.signals import MOST_NEW_TOKENS

SLOW = {
    "lookback": lambda s: lookback_score(s.log_prob, s.visual_lookback, 7.0, 1.5),
    "visual_lookback": lambda s: sum(s.visual_lookback.tolist()) / len(s),
    "mean_log_prob": lambda s: sum(s.log_prob.tolist()) / len(s),
    "sum_log_prob": lambda s: sum(s.log_prob.tolist()),
    "perplexity": lambda s: -(math.prod(math.exp(-x) for x in s.log_prob.tolist()) ** (1 / len(s))),
    "self_certainty": lambda s: sum(s.self_certainty.tolist()) / len(s),
    "entropy": lambda s: -sum(s.entropy.tolist()) / len(s),
}


def test_every_scorer_on_signals_is_checked_here():
    assert {s.name for s in scorers().values() if s.needs == "signals"} == set(SLOW)


def test_the_papers_baselines_are_all_there_with_what_they_need():
    known = {s.name: (s.needs, s.uses) for s in scorers().values()}
    assert {name: row for name, row in known.items() if name not in SLOW} == {
        "consensus": ("texts", ()),
        "majority": ("texts", ()),
        "self_certainty_borda": ("texts", ()),
        "random": ("texts", ()),
        "oracle": ("truth", ()),
        "clipscore": ("clip", ()),
        "judge": ("model", ("generate",)),
        "usc": ("model", ("generate",)),
        "vauq": ("model", ("knockout",)),
        "visual_gain": ("model", ("score",)),
    }
    assert all(s.about for s in scorers().values())
    order = [list(NEEDS).index(s.needs) for s in scorers().values()]
    assert order == sorted(order)  # from cheap to dear


@pytest.mark.parametrize("name", SLOW)
def test_a_score_depends_on_its_own_response_alone(name):
    cands = make_candidates(lengths=(3, 1, 5, 2))
    alone = [cands[i : i + 1].scores(name)[0] for i in range(4)]
    np.testing.assert_allclose(cands.scores(name), alone, rtol=1e-12)
    assert cands.rank(name)[0].index == int(np.argmax(alone))


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
    with pytest.raises(ValueError, match="each is empty or pruned"):
        make_candidates(lengths=(0, 0)).best()


def test_ties_keep_their_order_and_nan_is_last():
    scores = np.array([1.0, np.nan, 2.0, 1.0, 2.0, -np.inf])
    assert best_first(scores).tolist() == [2, 4, 0, 3, 5, 1]


def test_unknown_names_list_the_known_ones():
    with pytest.raises(ValueError, match=r"no scorer named 'nope'; there are: .*lookback"):
        get_scorer("nope")
    with pytest.raises(ValueError, match="Did you mean 'self_certainty'"):
        get_scorer("self_certanty")
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
        del SCORERS.entries["shortest-for-this-test"]


def test_needs_are_of_a_known_kind():
    with pytest.raises(ValueError, match="needs = 'luck': a scorer needs one of signals"):
        scorer("lucky", needs="luck")


def test_a_scorer_from_a_file_works_by_name(tmp_path, monkeypatch):
    plugin = tmp_path / "own_scorer.py"
    plugin.write_text(
        "import lookback\n\n\n"
        "@lookback.scorer('longest-of-plugin')\n"
        "def longest(batch):\n"
        "    'Most tokens.'\n"
        "    return batch.lengths.astype(float)\n"
    )
    monkeypatch.setenv("LOOKBACK_PLUGINS", str(plugin))
    monkeypatch.setattr(SCORERS, "entries", dict(SCORERS.entries))
    assert make_candidates().best("longest-of-plugin").index == 2
    assert make_candidates().best("longest-of-plugin").index == 2  # loaded once
    monkeypatch.setenv("LOOKBACK_PLUGINS", str(tmp_path / "missing.py"))
    with pytest.raises(FileNotFoundError, match="missing"):
        get_scorer("lookback")


def test_whole_runs_are_scored_at_once():
    """Three questions in one batch give what each gives alone, for all scorers on batches."""
    questions = [make_candidates(lengths=lengths) for lengths in ((3, 1, 5), (2, 2), (4, 0, 1, 6))]
    together = SignalBatch.of(
        [c.signals for cands in questions for c in cands],
        [c.text for cands in questions for c in cands],
        [len(cands) for cands in questions],
        quality=np.arange(9.0),
    )
    for one in scorers().values():
        if not one.from_signals:
            continue
        extra = [{"quality": np.arange(a, b)} for a, b in ((0, 3), (3, 5), (5, 9))]
        alone = [
            cands.scores(one.name, **(more if one.needs == "truth" else {}))
            for cands, more in zip(questions, extra, strict=True)
        ]
        defaults = questions[0].defaults
        np.testing.assert_allclose(
            one.of_batch(together, defaults, {}), np.concatenate(alone), rtol=1e-12
        )


def test_batches_must_fit_together():
    signals = [c.signals for c in make_candidates()]
    with pytest.raises(ValueError, match="texts are of 1 responses, signals of 3"):
        SignalBatch.of(signals, ["one"])
    with pytest.raises(ValueError, match="sizes are of 2"):
        SignalBatch.of(signals, sizes=[2])
    with pytest.raises(ValueError, match="quality has 2 values for 3"):
        SignalBatch.of(signals, quality=[0, 1])


def test_no_candidates_is_an_error():
    with pytest.raises(ValueError, match="no candidates"):
        make_candidates(lengths=()).rank()


@pytest.fixture
def own(monkeypatch):
    """Registers a function as the scorer `mine`, for one test."""
    monkeypatch.setattr(SCORERS, "entries", dict(SCORERS.all()))

    def register(function, **settings):
        scorer("mine", **settings)(function)
        return make_candidates()

    return register


@pytest.mark.parametrize(
    ("gives", "said"),
    [
        (
            [1.0],
            "scorer 'mine' gave 1 values for 3 responses: it must give one number per response",
        ),
        (1.0, r"scorer 'mine' gave an array of \(\) for 3 responses"),
        ([[1, 2, 3]], r"an array of \(1, 3\) for 3"),
        ([1, 2, 3, 4], "gave 4 values for 3"),
        (["a", "b", "c"], r"gave \['a', 'b', 'c'\]: it must give one number"),
        ([1, None, object()], "it must give one number per response"),
        (None, "scorer 'mine' gave"),
        ({"a": 1}, "it must give one number per response"),
    ],
)
def test_a_scorer_that_gives_anything_else_is_named(own, gives, said):
    with pytest.raises(ValueError, match=said) as caught:
        own(lambda batch: gives).rank("mine")
    assert "\n" not in str(caught.value)


class Stop(KeyboardInterrupt):
    """Looks like Ctrl-C, and is none."""


ERRORS = [ZeroDivisionError("division\nby zero"), ValueError("bad"), SystemExit("bye"), Stop("now")]


@pytest.mark.parametrize("error", ERRORS)
def test_a_scorer_that_raises_is_named(own, error):
    def failing(batch):
        raise error

    with pytest.raises(ValueError, match=rf"scorer 'mine' failed: {type(error).__name__}: ") as e:
        own(failing).rank("mine")
    assert "\n" not in str(e.value)


def test_whole_numbers_and_lists_are_numbers(own):
    assert own(lambda batch: [3, 1, 2]).scores("mine").tolist() == [3.0, 1.0, 2.0]


def test_where_lower_is_better_the_lowest_comes_first(own):
    cands = own(lambda batch: [3.0, 1.0, 2.0], lower_is_better=True)
    assert [c.index for c in cands.rank("mine")] == [1, 2, 0]
    assert [c.score for c in cands.rank("mine")] == [-1.0, -2.0, -3.0]
    assert SCORERS.get("entropy").lower_is_better
    assert (cands.scores("perplexity") < 0).all()


def test_titles_and_colours_travel_with_the_entry():
    paper = sorted((s for s in scorers().values() if s.paper), key=lambda s: s.paper)
    titles = ["Random", "SC", "USC", "CLIPScore", "VAUQ", "LookBack"]
    assert [s.title for s in paper] == titles  # as in tab:main_results
    assert len({s.color for s in paper}) == 6
    assert {s.name: s.expected for s in scorers().values() if s.expected} == {
        "random": "uniform",
        "usc": "shares",
    }


@pytest.mark.parametrize(
    ("name", "setting", "value"),
    [
        ("lookback", "alpha", {}),
        ("lookback", "lam", {}),
        ("majority", "alpha", {}),
        ("self_certainty_borda", "p", None),
        ("self_certainty_borda", "p", "x"),
        ("random", "seed", 0.5),
        ("random", "seed", True),
        ("random", "seed", "1"),
        ("lookback", "alpha", True),
        ("lookback", "alpha", "1"),
        ("lookback", "alpha", None),
        ("lookback", "lam", [1, 2]),
        ("consensus", "alpha", "1"),  # without weights it is not even used
        ("consensus", "beta", True),
        ("visual_gain", "beta", "1"),
        ("vauq", "alpha", True),
        ("usc", "image", "no"),
        ("judge", "max_new_tokens", True),
    ],
)
def test_a_setting_of_the_wrong_kind_is_named(name, setting, value):
    cands = make_candidates([3])
    with pytest.raises(SettingError) as error:
        cands.rank(name, **{setting: value})
    assert f"scorer {name!r} cannot work with " in str(error.value)
    assert f"{setting} = {value!r}" in str(error.value)


@pytest.mark.parametrize("value", [np.float64("nan"), float("inf"), np.float32("-inf")])
@pytest.mark.parametrize("name", ["lookback", "majority", "consensus", "vauq"])
def test_a_setting_that_is_not_finite_is_named(name, value):
    with pytest.raises(ValueError, match=f"alpha = {value}:"):
        make_candidates([3]).rank(name, alpha=value)


def test_a_truth_is_finite_numbers():
    cands = make_candidates([3, 2])
    assert cands.scores("oracle", quality=[True, False]).tolist() == [1.0, 0.0]
    for quality in (["1", "2"], [float("nan"), 1.0], [None, 1.0]):
        with pytest.raises(ValueError, match="quality = "):
            cands.scores("oracle", quality=quality)


def test_what_fails_without_a_setting_is_not_blamed_on_one(monkeypatch):
    scorer = get_scorer("entropy")

    def fails(batch):
        raise TypeError("a bug")

    monkeypatch.setitem(SCORERS.entries, "entropy", replace(scorer, function=fails))
    with pytest.raises(TypeError, match=r"^a bug$"):
        make_candidates([3, 2]).rank("entropy")


@pytest.mark.parametrize(
    ("name", "setting", "value"),
    [
        *(("lookback", "alpha", -1), ("majority", "lam", -0.5), ("consensus", "alpha", -1)),
        *(("consensus", "weights", "votes"), ("random", "seed", -1)),
        *(("usc", "m", 0), ("usc", "seed", -1), ("usc", "max_new_tokens", 0)),
        *(("judge", "max_new_tokens", 0), ("judge", "max_new_tokens", MOST_NEW_TOKENS + 1)),
        *(("vauq", "k", 0), ("vauq", "k", 1.5), ("vauq", "rows", "none")),
        *(("vauq", "layers", value) for value in ([3, 1], [-1, 2], [1], 5, ["a", "b"])),
    ],
)
def test_a_setting_out_of_range_is_named_before_there_is_a_model(name, setting, value):
    said = re.escape(f"{setting} = {value!r}:")
    with pytest.raises(ValueError, match=said):
        get_scorer(name).check({setting: value})
    with pytest.raises(ValueError, match=said):
        make_candidates([3]).rank(name, **{setting: value})


def test_a_truth_is_as_long_as_there_are_responses():
    oracle = get_scorer("oracle")
    oracle.check({"quality": [1, 0]}, 2)
    oracle.check({})  # it may come with the responses
    with pytest.raises(ValueError, match="quality has 2 values for 3"):
        oracle.check({"quality": [1, 0]}, 3)
    with pytest.raises(ValueError, match="with 3 numbers"):
        oracle.check({}, 3)


def test_a_users_own_scorer_validates_its_settings(own):
    def check(power):
        if power < 0:
            raise ValueError(f"power = {power}: must be at least 0")

    cands = own(lambda batch, power=1: batch.lengths**power, validate=check)
    assert cands.scores("mine", power=2).tolist() == [c.signals.token_ids.size**2 for c in cands]
    with pytest.raises(ValueError, match="power = -1"):
        cands.scores("mine", power=-1)
    with pytest.raises(SettingError, match=r"scorer 'mine' cannot work with power = 'x'"):
        get_scorer("mine").check({"power": "x"})
