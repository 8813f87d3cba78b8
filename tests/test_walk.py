"""How many files of the package a newcomer walks through, from a question to the best answer."""

import inspect
import sys
from pathlib import Path

from PIL import Image

import lookback

ROOT = Path(lookback.__file__).parent
FILES = 35


def files_of(work):
    """The files of the package whose functions run in this thread during some work."""
    seen = set()

    def note(frame, event, _):
        code = frame.f_code
        if event == "call" and code.co_flags & inspect.CO_OPTIMIZED:  # no module or class body
            seen.add(code.co_filename)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(before)
    return sorted(
        str(Path(name).relative_to(ROOT)) for name in seen if Path(name).is_relative_to(ROOT)
    )


def test_from_a_question_to_the_best_answer():
    load, image = lookback.load, Image.new("RGB", (64, 64))

    def walk():
        load().sample(image, "What is red?", n=3, seed=1).best("lookback")

    walk()  # imports and what is tried once per process are no part of it
    files = files_of(walk)
    assert "engines/base.py" in files
    assert len(files) <= FILES, files
