"""Cases that are made up, and folders of them."""

from PIL import Image

from lookback.annotation.cases import Case, Cases, KeyCase, Pick, folder_files, study_id
from lookback.annotation.votes import Vote, is_swapped
from lookback.pages import image_uri

FIRST = Pick("lookback", "LookBack", "#ea580c")
SECOND = Pick("self_certainty", "SC", "#2563eb")
SCORERS = (FIRST.name, SECOND.name)


def make_cases(sizes=(3, 2), texts=("truth {} {}", "fable {} {}"), image=True):
    """So many cases in each set."""
    uri = image_uri(Image.new("RGB", (40, 30), "teal")) if image else None
    places = [(s, c) for s, size in enumerate(sizes, 1) for c in range(1, size + 1)]
    made = [
        Case(*p, f"What is in picture {p[0]}.{p[1]}?", tuple(t.format(*p) for t in texts), uri)
        for p in places
    ]
    return Cases(study_id(made), tuple(made))


def make_folder(folder, cases, quality=None):
    """A folder of cases; LookBack's pick is the first answer where set and case add up to even.

    Args:
        quality: (set, case) -> (LookBack's, SC's).
    """
    keyed = []
    for case in cases.cases:
        swap = (case.set + case.case) % 2
        both = (quality or {}).get(case.place, (0.5, 0.25))
        order = (SCORERS[swap], SCORERS[1 - swap]), (both[swap], both[1 - swap])
        keyed.append(KeyCase(*case.place, f"id-{case.set}-{case.case}", *order))
    about = {"model": "made-up", "benchmark": "Scenes Caption", "n": 25}
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in folder_files(cases.cases, keyed, FIRST, SECOND, **about).items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def vote_of(study, rater, place, kind):
    """The vote of a rater who prefers "first" (LookBack's), "second" or neither ("tie")."""
    swapped = is_swapped(study, rater, *place)
    answer = (kind == "second") ^ (sum(place) % 2)  # 0 or 1: where `make_folder` put it
    choice = "tie" if kind == "tie" else "AB"[answer ^ swapped]
    return Vote(study, rater, *place, choice, swapped, "2026-01-01T00:00:00+00:00")
