"""HallusionBench: yes/no questions about figures that contradict what one expects.

The paper evaluates on the visual-dependent (VD) questions; split "all" adds the visual-supplement
(VS) ones. A judge (`judge`) compares each response with the reference answer.

correctness (the paper's): the share of responses that are judged correct; anything else is not.
The official script's three: aAcc, over all questions; fAcc, figures with all their questions right;
qAcc, questions of a set that are right for all its figures. The script has a third verdict, 2, for
what is neither correct nor incorrect: an answer that is left open, or a judgement that cannot be
read. It is right where a VS question is asked without a figure; those belong to no figure. Where
the judge could not be asked at all, or its reply is no text, a response is wrong by any count.

A row has no id of its own: an item's id is category_subcategory_set_figure_question, as in the
official evaluation. Responses may also use the row's number in the file (from 0), or the id with
the row's visual_input after the subcategory.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from lookback.benchmarks.base import Item, Judged, Unjudging, all_right, benchmark, mean_percent
from lookback.benchmarks.files import ID, FileBenchmark, ImageFile, Shape, check_rows, read_json
from lookback.benchmarks.judge import Case, FallibleJudge, Judge, Verdict, get_judge

FILE = "HallusionBench.json"
_KEYS = ("category", "subcategory", "set_id", "figure_id", "question_id")
_SHAPE: Shape = {
    **dict.fromkeys((*_KEYS, "visual_input", "gt_answer"), ID),
    "question": str,
    "gt_answer_details": str,
    "filename": (str, type(None)),
}


@benchmark("hallusionbench", title="HallusionBench")
class HallusionBench(FileBenchmark, Judged, Unjudging):
    """Correctness by a judge, and the three official accuracies.

    Args:
        data: the folder of HallusionBench.json and of the figures.
        judge: decides what is correct; by default the one that the environment names, else rules.
    """

    primary = "correctness"
    source = (
        "HallusionBench, github.com/tianyi-lab/HallusionBench; figures: its hallusion_bench.zip"
    )
    files = (FILE, "the folders VD and VS with the figures (to sample)")
    default_split = "test"

    def __init__(
        self, data: str | os.PathLike[str] | None = None, judge: Judge | None = None
    ) -> None:
        super().__init__(data)
        self._judge = judge

    @property
    def judge(self) -> Judge:
        """Chosen when it is first needed, so that listing items needs no endpoint."""
        if self._judge is None:
            self._judge = get_judge()
        return self._judge

    def judge_name(self) -> str:
        return self.judge.name

    def check(self) -> None:
        self.find(FILE)

    def load(self, split: str) -> Sequence[Item]:
        path = self.find(FILE)
        where = f"{str(path)!r} is not HallusionBench's list"
        rows = check_rows(read_json(path), _SHAPE, where)
        items = [self._item(number, row) for number, row in enumerate(rows)]
        return [item for item in items if split == "all" or item.truth["category"] == "VD"]

    def _item(self, number: int, row: dict[str, Any]) -> Item:
        values = [str(row[key]) for key in _KEYS]
        longer = [*values[:2], str(row["visual_input"]), *values[2:]]
        name = "_".join(values)
        truth = dict(zip(_KEYS, values, strict=True)) | {
            "details": row["gt_answer_details"],
            "answer": "yes" if str(row["gt_answer"]) == "1" else "no",
        }
        aliases = ("_".join(longer), str(number))
        return Item(name, row["question"], truth, self._image(row["filename"]), aliases)

    def _image(self, filename: str | None) -> ImageFile | None:
        if not filename:
            return None
        path = filename.removeprefix("./")
        places = (path, f"hallusion_bench/{path}", f"images/{path}")
        return ImageFile(self.folder, places, self.source, from_data=True)

    def score(self, item: Item, response: str) -> float:
        return self.scores(item, [response])[0]

    def scores(self, item: Item, responses: Sequence[str]) -> list[float]:
        verdicts = self.verdicts([item] * len(responses), responses)
        return [float(verdict == "correct") for verdict in verdicts]

    def verdicts(self, items: Sequence[Item], responses: Sequence[str]) -> list[Verdict]:
        self.notes = self.judge.notes
        return self.judge.verdicts(_cases(items, responses))

    def unjudged(self, items: Sequence[Item], responses: Sequence[str]) -> dict[int, str]:
        judge = self.judge
        cases = _cases(items, responses)
        return judge.unjudged(cases) if isinstance(judge, FallibleJudge) else {}

    def aggregate(self, items: Sequence[Item], responses: Sequence[str]) -> dict[str, float]:
        """Return correctness, aAcc, fAcc and qAcc; groups are made of the items given."""
        verdicts = self.verdicts(items, responses)
        unjudged = self.unjudged(items, responses)
        if not verdicts:
            raise ValueError("no items to aggregate")
        truths = [item.truth for item in items]
        right = [
            float(
                verdict == "correct"
                or (verdict != "incorrect" and _no_figure(truth) and number not in unjudged)
            )
            for number, (verdict, truth) in enumerate(zip(verdicts, truths, strict=True))
        ]
        seen = [(t, r) for t, r in zip(truths, right, strict=True) if not _no_figure(t)]
        figures = [_group(t, "figure_id") for t, _ in seen]
        return {
            "correctness": mean_percent([verdict == "correct" for verdict in verdicts]),
            "aAcc": mean_percent(right),
            "fAcc": all_right(figures, [r for _, r in seen]),
            "qAcc": all_right([_group(t, "question_id") for t in truths], right),
        }


def _cases(items: Sequence[Item], responses: Sequence[str]) -> list[Case]:
    return [
        Case(item.question, item.truth["details"], item.truth["answer"], response)
        for item, response in zip(items, responses, strict=True)
    ]


def _no_figure(truth: dict[str, Any]) -> bool:
    """Return whether a question is asked without an image: figure 0 of the VS sets is none."""
    return bool(truth["category"] == "VS" and truth["figure_id"] == "0")


def _group(truth: dict[str, Any], last: str) -> tuple[str, ...]:
    return (truth["category"], truth["subcategory"], truth["set_id"], truth[last])
