"""Every page of the documents: its Python runs, its commands, options and links exist."""

import re

import pytest
import typer
from documents import (
    NOTEBOOKS,
    PAGES,
    ROOT,
    anchors,
    blocks,
    inline_words,
    links,
    read,
    shell_words,
)
from engines.reference import inputs_of, noise
from made_runs import make_run
from zoo import build

import lookback
from lookback.cli import app
from lookback.cli.ray import complete_ray
from lookback.scores.base import SCORERS
from tools.site import code, commands, fetched
from tools.site.pages import OUTSIDE, relink

ALL = PAGES + NOTEBOOKS
# test_contributing.py, test_own_data_doc.py, runs/test_ray.py, server/test_serve_doc.py,
# with_tools, with_trl/test_grpo.py, integrations/test_custom_generate.py
RUN_ELSEWHERE = {"CONTRIBUTING.md", "own-data.md", "scale.md", "serve.md", "vllm.md"}
RUN_ELSEWHERE |= {"clients.md", "export.md", "trl.md", "custom-generate.md"}
COMMANDS = typer.main.get_command(app)


def name_of(path):
    return path.name


@pytest.fixture
def names(tmp_path, monkeypatch):
    """What the snippets take for granted: pictures, a run, a model, whatever name they load."""
    zoo = build("llava")
    for name in ("photo", "before", "after"):
        noise().save(tmp_path / f"{name}.jpg")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(zoo.model.generation_config, "max_new_tokens", 5)
    monkeypatch.setattr(SCORERS, "entries", dict(SCORERS.all()))
    engine = lookback.load(zoo.model, zoo.processor)
    monkeypatch.setattr(lookback, "load", lambda name=None: engine, raising=False)
    monkeypatch.setattr(engine, "sample", briefly(engine.sample))
    monkeypatch.setattr(engine, "search", briefly(engine.search))
    for task in ("caption", "vqa"):
        make_run(tmp_path / "runs" / task, f"scenes-{task}", items=3, n=6)
    return {
        "lookback": lookback,
        "model": zoo.model,
        "processor": zoo.processor,
        "inputs": inputs_of(engine, noise()),
        "lb": engine,
    }


def briefly(sample):
    """`sample` with answers of five tokens: an untrained model does not end by itself."""

    def short(*arguments, **settings):
        return sample(*arguments, **settings | {"max_new_tokens": 5})

    return short


WITH_PYTHON = [p for p in PAGES if blocks(read(p), "python") and p.name not in RUN_ELSEWHERE]


@pytest.mark.parametrize("page", WITH_PYTHON, ids=name_of)
def test_the_python_of_a_page_runs_in_its_order(page, names):
    for block in blocks(read(page), "python"):
        exec(block, names)


def test_these_pages_have_python():
    assert {"README.md", "index.md", "tutorial.md", "recording.md"} <= {p.name for p in WITH_PYTHON}


def lookback_calls(path):
    """Each `lookback ...` of a page: its words, and whether it is a whole command."""
    text = read(path)
    for words, whole in [(w, True) for w in shell_words(text)] + [
        (w, False) for w in inline_words(text)
    ]:
        if words[0] == "lookback" and len(words) > 1:
            yield words[1:], whole


def find_command(words):
    """The command that words call, and what they give it."""
    words = without_plugin(words)
    command = COMMANDS
    while words and hasattr(command, "commands") and not words[0].startswith("-"):
        assert words[0] in command.commands, f"there is no command {words[0]!r}"
        command, words = command.commands[words[0]], words[1:]
    return command, words


def without_plugin(words):
    """`--plugin` may stand anywhere on the line."""
    words = list(words)
    while "--plugin" in words:
        at = words.index("--plugin")
        del words[at : at + 2]
    return words


def check_call(words, whole):
    """Refuse options that a command does not have; of a whole command also wrong arguments."""
    command, rest = find_command(words)
    known = {option for parameter in command.params for option in parameter.opts} | {"-h", "--help"}
    unknown = {word.split("=")[0] for word in rest if re.match(r"--?[a-z]", word)} - known
    assert not unknown, f"{command.name} has no {unknown}"
    if whole and "..." not in rest:
        context = command.context_class(command, info_name=command.name)
        given, left, _ = command.make_parser(context).parse_args(complete_ray(list(rest)))
        needed = [p.name for p in command.params if p.required and not given.get(p.name)]
        assert (needed, left) == ([], []), f"{command.name}: needs {needed}, too much {left}"


@pytest.mark.parametrize("page", ALL, ids=name_of)
def test_commands_have_the_options_that_a_page_gives_them(page):
    for words, whole in lookback_calls(page):
        try:
            check_call(words, whole)
        except Exception as error:
            raise AssertionError(f"{page.name}: lookback {' '.join(words)}: {error}") from error


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("ask a.png why --nothing 3", "has no {'--nothing'}"),
        ("score a.png", "needs ['question']"),
        ("scorers one", "too much ['one']"),
        ("asks a.png why", "no command 'asks'"),
        ("runs mend DIR", "no command 'mend'"),
        ("study main runs -n", "-n"),
    ],
)
def test_a_wrong_line_is_noticed(line, said):
    with pytest.raises(Exception, match=re.escape(said)):
        check_call(line.split(), whole=True)


def test_there_are_lines_to_check():
    whole = [words for page in ALL for words, whole in lookback_calls(page) if whole]
    assert {"ask", "score", "check", "run", "study", "evaluate"} <= {words[0] for words in whole}
    assert len(whole) > 40


@pytest.mark.parametrize("page", ALL, ids=name_of)
def test_make_knows_what_a_page_tells_it(page):
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    text = read(page)
    told = [w[1] for w in shell_words(text) + inline_words(text) if w[0] == "make" and len(w) > 1]
    assert [name for name in told if name not in targets] == []


@pytest.mark.parametrize("page", ALL, ids=name_of)
def test_links_lead_somewhere(page):
    """In the repository, as GitHub shows it; those of the site are checked when it is built."""
    for target, anchor in links(read(page)):
        path = (page.parent / target).resolve() if target else page
        assert path.exists(), f"{page.name}: {target} is not there"
        assert not anchor or anchor in anchors(path), f"{page.name}: {target} has no #{anchor}"


def test_a_link_leads_to_the_same_page_on_the_site():
    assert relink("[a](docs/runs.md#x)", "contributing.md") == "[a](runs.md#x)"
    assert relink("[a](../CONTRIBUTING.md#x)", "runs.md") == "[a](contributing.md#x)"
    assert relink("[a](../docs/runs.md)", "notebooks/own_scorer.md") == "[a](../runs.md)"
    assert relink("[a](own_scorer.py)", "notebooks/which_answer.md") == "[a](own_scorer.md)"
    assert relink("[a](../notebooks/own_scorer.py)", "index.md") == "[a](notebooks/own_scorer.md)"
    same = "[a](#x) [b](https://example.org/docs/a) [c](../lookback/signals.py) ![d](a_files/x.png)"
    assert relink(same, "notebooks/own_scorer.md") == same


def test_what_lies_outside_of_docs_is_there():
    assert [name for name in OUTSIDE if not (ROOT / name).exists()] == []
    assert sum(name.startswith("notebooks/") for name in OUTSIDE) == len(NOTEBOOKS) == 2


def test_the_commands_page_is_what_the_commands_say():
    page = commands.PAGE.read_text(encoding="utf-8")
    assert commands.replace_reference(page) == page, "write it again: make commands-page"


def test_the_code_page_lists_the_files_that_there_are():
    page = code.PAGE.read_text(encoding="utf-8")
    assert code.replace_list(page) == page, "write it again: make code-page"


def test_what_a_page_would_fetch_is_noticed(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(fetched, "SITE", tmp_path)
    assert fetched.main() == 1  # no page at all is no site
    page = tmp_path / "a.html"
    page.write_text('<a href="https://example.org">x</a><img src="b.png"><script>"//x"</script>')
    assert fetched.main() == 0
    page.write_text('<link href="https://fonts.example/a.css"><script src="//cdn.example/a.js">')
    assert fetched.main() == 1
    assert "cdn.example" in capsys.readouterr().out
