"""fig:motivation_overall and the qualitative figures: what each scorer sees in single tokens."""

from __future__ import annotations

from typing import Any

import numpy as np

from lookback.pages.tokens import Case, Response, tokens_page
from lookback.runs import Run
from lookback.runs.items import item_images
from lookback.scores.base import get_scorer
from lookback.scores.formula import Array, relevance, token_scores
from lookback.signals import Candidate
from lookback.studies.common.base import Result, Runs, StudyError, study, title
from lookback.studies.common.selection import (
    has_scores,
    in_order,
    own_methods,
    picks,
    quality_of_picks,
)
from lookback.studies.common.typesetting import shaded_figure

NAME = "tokens"
COMPARED = ("lookback", "self_certainty", "visual_lookback")
"""Whose picks are shown; users' own follow."""
FULL = 1.0
"""The highest quality that a response can have."""
SUCCESS = "LookBack's pick has full quality (1) and SC's has less"
FAILURE = "the quality of LookBack's pick is at most half of the best candidate's"
RULE = (
    f"A success is an item of which {SUCCESS}; of several the one with the largest difference. A "
    f"failure is one of which {FAILURE}; of several the one with the largest difference. Of equal "
    "ones the first."
)
NOTES = [
    "Shades: darker is higher, from the lowest to the highest token of each row. LookBack's row is "
    "shaded by exp(u_t) = p_t A_t^alpha (Eq. 4), before the weights q(t), which the CSV has.",
    RULE,
]


@study(
    NAME,
    paper="fig:motivation_overall, fig:appendix_quali_1, fig:appendix_quali_failure",
    title="Tokens",
)
def tokens(runs: Runs, item: int | str | None = None, shown: int | None = None) -> Result:
    """The picks of each scorer for single items, their tokens shaded by its token scores.

    Args:
        runs: the figure is of the first that has such an item; the page and the rows are of all.
        item: an item's id, or its position in the split; by default a success and a failure, as
            far as there are such, for which the quality of responses must be known.
        shown: the most candidates of an item; by default all picks: those of LookBack, SC, visual
            lookback, scorers of one's own, the oracle.

    Raises:
        StudyError: there is no such item, or no item with a success or a failure.
    """
    if shown is not None and shown < 1:
        raise StudyError(f"shown = {shown}: show at least one candidate")
    cases: list[list[Case]] = []
    rows: list[dict[str, Any]] = []
    if item is None:
        runs = runs.with_quality(NAME)
    notes = [*NOTES, *runs.notes]
    for run in in_order(runs.largest):
        n = runs.budget(run)
        chosen = _asked(run, item) if item is not None else choose_cases(run, n)
        if item is None:
            notes += _case_notes(run, n, chosen)
        cases.append([])
        image = item_images(run)
        for name, row in chosen.items():
            responses, found = _responses(run, n, row, shown)
            seen = image(int(run.places[row]))
            notes += [f"{run.ids[row]}: no image: {seen}"] if isinstance(seen, str) else []
            told = _qualities(run, n, row) if item is None else ""
            label = f"{name}{told}: {title(run)}, {run.model}"
            cases[-1].append(Case(label, run.questions[row], seen, responses))
            labels = {"model": run.model, "benchmark": title(run), "N": n}
            labels |= {"case": name, "id": run.ids[row]}
            rows += [labels | one for one in found]
    if not rows:
        wanted = f"no success and no failure to show: name an item with --set item=ID. {RULE}"
        raise StudyError(wanted if item is None else f"no run here has an item {item!r}")
    first = next(here for here in cases if here)
    page = tokens_page([case for here in cases for case in here], RULE if item is None else "")
    return Result(rows, [], shaded_figure(first), notes, {"page.html": page})


def _asked(run: Run, item: int | str) -> dict[str, int]:
    """The row of an item by its id or its position; none if the run does not have it."""
    if str(item) in run.ids:
        return {str(item): run.ids.index(str(item))}
    rows = np.flatnonzero(run.places == int(item)) if str(item).isdecimal() else np.array([])
    return {run.ids[int(row)]: int(row) for row in rows}


def choose_cases(run: Run, n: int) -> dict[str, int]:
    """The rows of a success and of a failure, as far as there are such, by `RULE`.

    Args:
        run: whose items all have a quality.
        n: of how many candidates of each is picked.
    """
    ours, theirs, best = _picked(run, n)
    found: dict[str, int] = {}
    for name, right, difference in (
        ("Success", (ours >= FULL) & (theirs < ours), ours - theirs),
        ("Failure", (ours < best) & (ours <= best / 2), best - ours),
    ):
        if right.any():
            found[name] = int(np.where(right, difference, -np.inf).argmax())
    return found


def _picked(run: Run, n: int) -> tuple[Array, Array, Array]:
    """(items,) each: the quality of LookBack's pick, of SC's, and of the best candidate."""
    quality = run.quality(n)
    ours, theirs = (quality_of_picks(run.scores(name, n), quality) for name in COMPARED[:2])
    return ours, theirs, np.asarray(np.nanmax(quality, axis=1))


def _qualities(run: Run, n: int, row: int) -> str:
    """What the picks of an item are worth."""
    ours, theirs, best = (values[row] for values in _picked(run, n))
    return f" (LookBack's pick {ours:.2f}, SC's {theirs:.2f}, best {best:.2f})"


def _case_notes(run: Run, n: int, chosen: dict[str, int]) -> list[str]:
    """A note per case: which item it is, or that there is none."""
    name, notes = f"{title(run)}, {run.model}", []
    for case, rule in (("Success", SUCCESS), ("Failure", FAILURE)):
        if case in chosen:
            row = chosen[case]
            notes.append(f"{name}: {case.lower()} {run.ids[row]}{_qualities(run, n, row)}.")
        else:
            notes.append(f"{name}: no {case.lower()}: there is no item of which {rule}.")
    return notes


def _responses(
    run: Run, n: int, row: int, most: int | None
) -> tuple[list[Response], list[dict[str, Any]]]:
    """The shown candidates of an item's first n, and a row for each of their tokens."""
    own = [method for method in own_methods([run]) if has_scores(run, method, n)]
    scores = {get_scorer(m).title: run.scores(m, n)[row] for m in (*COMPARED, *own)}
    quality, candidates = run.quality(n)[row], run.candidates(row)[:n]
    pickers = _pickers(scores, quality)
    responses, rows = [], []
    for index in list(pickers)[:most]:
        by, one = ", ".join(pickers[index]), candidates[index]
        if not len(one.signals):
            continue
        known = "-" if np.isnan(quality[index]) else f"{quality[index]:.2f}"
        ranks = [f"{name} {1 + int((v > v[index]).sum())}" for name, v in scores.items()]
        about = f"picked by {by} · quality {known} · rank of {len(candidates)}: "
        values = _token_rows(one, run.defaults)
        shaded = {"SC": "self_certainty", "A": "visual_lookback", "LookBack": "exp_token_score"}
        columns = {name: np.array([v[key] for v in values]) for name, key in shaded.items()}
        responses.append(Response(about + ", ".join(ranks), one.tokens, columns))
        labels = {"candidate": index, "picked_by": by, "quality": float(quality[index])}
        rows += [labels | value for value in values]
    return responses, rows


def _pickers(scores: dict[str, Array], quality: Array) -> dict[int, list[str]]:
    """Which candidates are picked, and by whom; the best, if known, by the oracle."""
    pickers: dict[int, list[str]] = {}
    for name, values in scores.items():
        pickers.setdefault(int(picks(values[None])[0]), []).append(name)
    if np.isfinite(quality).any():
        best = np.flatnonzero(quality == np.nanmax(quality)).tolist()
        oracle = next((i for i in pickers if i in best), best[0])
        pickers.setdefault(oracle, []).append("oracle")
    return pickers


def _token_rows(one: Candidate, defaults: dict[str, float]) -> list[dict[str, Any]]:
    """Everything about each token."""
    score = token_scores(one.log_prob, one.visual_lookback, defaults["alpha"])
    weight = relevance(one.visual_lookback, defaults["lam"])
    numbers: dict[str, Any] = {"log_prob": one.log_prob, "visual_lookback": one.visual_lookback}
    numbers |= {"self_certainty": one.self_certainty, "token_score": score}
    numbers |= {"exp_token_score": np.exp(score), "relevance": weight}
    return [
        {"t": t, "token": token} | {name: float(values[t]) for name, values in numbers.items()}
        for t, token in enumerate(one.tokens)
    ]
