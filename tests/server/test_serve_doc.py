"""docs/serve.md, line by line: its Python runs, its limits and defaults are the command's."""

import re

import typer
from documents import ROOT, blocks, read
from PIL import Image
from server.serving import embedded, serving

from lookback.cli import app
from lookback.scenes.render import render
from lookback.scenes.scene import sample_scene
from lookback.server.settings import Settings

PAGE = ROOT / "docs" / "serve.md"
SERVE = typer.main.get_command(app).commands["serve"]


def test_its_python_runs(tmp_path, monkeypatch, capsys):
    render(sample_scene(5)).resize((160, 160), Image.Resampling.NEAREST).save(
        tmp_path / "photo.jpg"
    )
    monkeypatch.chdir(tmp_path)
    with serving(embedded(), Settings()) as client:
        here = f"{client.base_url}".rstrip("/")
        names = {}
        for code in blocks(read(PAGE), "python"):
            exec(code.replace("http://127.0.0.1:8000", here), names)
    said = capsys.readouterr().out
    assert len(names["answer"].choices) == 2
    assert names["answer"].choices[0].lookback["of"] == 10
    assert "('A red cup.'" in said
    assert len(names["looked"]["pictures"][0]["weights"][0]) == 100


def test_its_limits_are_the_commands():
    text = read(PAGE)
    rows = re.findall(r"^\| (`--[^|]*`) \| ([^|]*) \|", text, re.MULTILINE)
    options = {option: p.default for p in SERVE.params for option in p.opts}
    assert len(rows) >= 8
    for names, words in rows:
        numbers = [int(n.replace(",", "")) for n in re.findall(r"\d[\d,]*", words)]
        for option, number in zip(re.findall(r"--[\w-]+", names), numbers, strict=False):
            assert options[option] in (number, None), option
