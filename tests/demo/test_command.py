"""`lookback demo` as a shell sees it; with its model: tests/embedded/test_shipped.py."""

import pytest
from demo.made import make_asked
from strict_html import Page

from lookback.cli.demo import Start
from lookback.engines.base import Identity


@pytest.fixture
def no_model(monkeypatch):
    monkeypatch.setattr(Start, "engine", lambda self: pytest.fail("the model was loaded"))


@pytest.mark.parametrize(
    ("arguments", "status", "named"),
    [
        (("--out", "file/below/demo.html"), 1, "file"),
        (("--out", "folder"), 1, "'folder'"),
        (("--item", "1000"), 1, "999"),
        (("--item", "-1"), 1, "-1"),
        (("--seed", "-1"), 1, "seed"),
        (("--task", "own"), 2, "scenes-vqa"),
    ],
)
def test_what_is_wrong_is_said_before_the_model_loads(
    command, no_model, tmp_path, monkeypatch, arguments, status, named
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    code, out, err = command("demo", *arguments)
    assert (code, out) == (status, "")
    assert named in err
    assert "bug" not in err


class Engine:
    """Says the same to everything."""

    def sample(self, image, question, n, *, max_new_tokens, seed=None, temperature=1.2):
        return make_asked([(" A sun.", 1.0, ())] * n, question=question).candidates

    def identity(self):
        return Identity(engine="made", model="made", model_class="Made")


def test_an_item_that_is_named_is_shown_and_written(command, tmp_path, monkeypatch):
    monkeypatch.setattr(Start, "engine", lambda self: Engine())
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # else the command would set it for later tests
    page = tmp_path / "new" / "folder" / "demo.html"
    arguments = ("--task", "scenes-caption", "--item", "7", "--out", page)
    code, out, err = command("demo", *arguments)
    assert (code, err) == (0, "")
    assert out.count("A sun.") == 6  # four picks, greedy decoding, and the table's one row
    assert out.split()[-1] == str(page)
    assert "scenes-caption/test/7" in Page(page.read_text(encoding="utf-8")).order
