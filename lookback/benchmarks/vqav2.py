"""VQAv2: short answers to questions about COCO photographs, ten people's answers per question.

A person's answer agrees with a response if both have the same official form (`normalise`). As in
the official script people's answers are left as they are if all ten are equal; the response is put
into the official form in any case, as the evaluation server does. A response is tried as it stands
first, and only if nobody gave it, as what `parse` reads in it.

accuracy (the paper's): min(n / 3, 1) for n of ten people who agree. accuracy_official: the mean of
that over the ten sets of nine people. accuracy_script: the same mean by the letter of the script,
which reads nothing out of sentences and, where all ten are equal, compares raw text, so that "Yes."
is not "yes". All are averaged over the questions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from lookback.benchmarks.answers import normalise, parse
from lookback.benchmarks.base import Item, Items, benchmark, mean_percent
from lookback.benchmarks.files import (
    ID,
    FileBenchmark,
    Shape,
    check_rows,
    coco_image,
    get_rows,
    read_json,
)
from lookback.io.storage import AnyPath, in_order

HINT = "Answer the question using a single word or phrase."
ENOUGH = 3  # people who must agree for the full score
SUBSETS = ("val2014", "train2014")
_ENDINGS = (".json", ".json.gz", ".zip")
_QUESTION: Shape = {"question_id": ID, "image_id": int, "question": str}
_ANNOTATION: Shape = {"question_id": ID, "answers": list}


@benchmark("vqav2", title="VQAv2")
class VQAv2(FileBenchmark):
    """Accuracy as the paper has it, and as the official evaluation has it."""

    primary = "accuracy"
    source = "VQA v2.0, visualqa.org, balanced real images, validation 2014; images: MS-COCO"
    files = ("a questions JSON", "an annotations JSON (plain, .gz or .zip)", "images (to sample)")
    sampled = 1000

    def check(self) -> None:
        self._paths()

    def _paths(self) -> tuple[AnyPath, AnyPath]:
        """Return questions and annotations, of the validation set if there are several."""
        annotations = self._choose("annotations", list(self._named("annotations")))
        subset = next((s for s in ("val", "train") if s in annotations.name.lower()), "")
        questions = list(self._named("questions"))
        matching = [path for path in questions if subset in path.name.lower()]
        return self._choose("questions", matching or questions), annotations

    def _named(self, word: str) -> Iterator[AnyPath]:
        """Yield files whose names have a word; of one both packed and plain, the plain one."""
        seen: set[str] = set()
        for ending in _ENDINGS:
            for path in in_order(self.folder.iterdir()):
                lower = path.name.lower()
                stem = lower.removesuffix(ending)
                fits = word in stem and lower.endswith(ending) and not lower.startswith(".")
                if fits and stem not in seen and path.is_file():
                    seen.add(stem)
                    yield path

    def _choose(self, word: str, paths: list[AnyPath]) -> AnyPath:
        if not paths:
            return self.find(f"*{word}*.json")  # which says that there is none
        if len(paths) > 1:
            paths = [path for path in paths if "val" in path.name.lower()] or paths
        if len(paths) > 1:
            names = ", ".join(path.name for path in paths)
            raise ValueError(
                f"{len(paths)} {word} files in {str(self.folder)!r} ({names}): keep one there"
            )
        return paths[0]

    def load(self, split: str) -> Sequence[Item]:
        questions_path, annotations_path = self._paths()
        questions = get_rows(read_json(questions_path), questions_path, "questions", _QUESTION)
        data = read_json(annotations_path)
        annotations = get_rows(data, annotations_path, "annotations", _ANNOTATION)
        answers = {row["question_id"]: row for row in annotations}
        rows = [row for row in questions if row["question_id"] in answers]
        if not rows:
            raise ValueError(
                f"no question of {str(questions_path)!r} has answers in {str(annotations_path)!r}: "
                "put files of the same set there"
            )
        subset = next((s for s in SUBSETS if s in annotations_path.name), SUBSETS[0])
        folder = self.folder

        def make(index: int) -> Item:
            row = rows[index]
            annotation = answers[row["question_id"]]
            where = f"{str(annotations_path)!r}, answers to question {row['question_id']}"
            people = check_rows(annotation["answers"], {"answer": str}, where)
            if not people:
                raise ValueError(f"{where}: there are none")
            truth = {
                "question": row["question"],
                "answers": [answer["answer"] for answer in people],
                "answer_type": annotation.get("answer_type", "other"),
                "image_id": row["image_id"],
            }
            prompt = f"{row['question']}\n{HINT}"
            image = coco_image(folder, int(row["image_id"]), subset)
            return Item(str(row["question_id"]), prompt, truth, image)

        return Items(range(len(rows)), make)

    def score(self, item: Item, response: str) -> float:
        return _share(sum(agreement(response, **_asked(item))))

    def details(
        self, items: Sequence[Item], responses: Sequence[str], scores: list[float]
    ) -> dict[str, float]:
        official: list[float] = []
        script: list[float] = []
        by_type: dict[str, list[float]] = {}
        for item, response in zip(items, responses, strict=True):
            official.append(leave_one_out(agreement(response, **_asked(item))))
            script.append(leave_one_out(script_agreement(response, item.truth["answers"])))
            by_type.setdefault(item.truth["answer_type"], []).append(official[-1])
        overall = {"accuracy_official": official, "accuracy_script": script}
        types = {f"accuracy_official_{kind}": by_type[kind] for kind in sorted(by_type)}
        return {name: mean_percent(values) for name, values in (overall | types).items()}


def agreement(response: str, question: str, answers: Sequence[str]) -> list[bool]:
    """Return which people's answers a response agrees with, by the module's rule."""
    people = list(answers) if len(set(answers)) == 1 else [normalise(a) for a in answers]
    whole = " ".join(response.split())
    for reading in (whole, parse(response, question)):
        forms = {reading, normalise(reading)}
        agreeing = [answer in forms for answer in people]
        if any(agreeing):
            break
    return agreeing


def script_agreement(response: str, answers: Sequence[str]) -> list[bool]:
    """Return which people's answers are the response, by the letter of the official script.

    Where people differ all are put into the official form, and so is the response; where they do
    not, nothing is, beyond blanks for tabs and line breaks and none at the ends of the response.
    """
    plain = response.replace("\n", " ").replace("\t", " ").strip()
    if len(set(answers)) == 1:
        return [answer == plain for answer in answers]
    return [normalise(answer) == normalise(plain) for answer in answers]


def leave_one_out(agreeing: Sequence[bool]) -> float:
    """Return the mean, over everybody, of the score that the others' answers give."""
    n = sum(agreeing)
    return sum(_share(n - agrees) for agrees in agreeing) / len(agreeing)


def _share(n: int) -> float:
    return min(n / ENOUGH, 1.0)


def _asked(item: Item) -> dict[str, Any]:
    return {"question": item.truth["question"], "answers": item.truth["answers"]}
