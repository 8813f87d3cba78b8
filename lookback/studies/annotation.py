"""The page on which a person compares two answers a case; it does not know who picked which."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from lookback.studies.pages import escaped, page, tag

if TYPE_CHECKING:
    from PIL.Image import Image

_INTRODUCTION = """<p>Each case has a picture, a question and two answers, A1 and A2. Choose the
answer that tells more truly what is in the picture.</p>
<p>Both may have mistakes: then choose the one that is closer to the picture on the whole. Choose
Tie only if the two are about equally true, or about equally wrong.</p>
<p>At the end, download your choices and send the file back.</p>
"""
_STYLE = """
.case { display: grid; grid-template-columns: 16rem 1fr 1fr; gap: 1rem; }
.answer { white-space: pre-wrap; overflow-wrap: anywhere; }
fieldset { border: 0; margin: 0; padding: 0.5rem 0; }
label { margin-right: 1.5rem; }
footer { position: sticky; bottom: 0; background: #fff; padding: 1rem 0; }
@media (max-width: 45rem) { .case { grid-template-columns: 1fr; } }
"""
_SCRIPT = """
const cases = [...document.querySelectorAll("fieldset")];
const choices = () => Object.fromEntries(cases.map(
  one => [one.name, (one.querySelector("input:checked") || {value: null}).value]));
const count = () => {
  const made = Object.values(choices()).filter(value => value).length;
  document.getElementById("made").textContent = `${made} of ${cases.length} chosen`;
};
document.addEventListener("change", count);
document.getElementById("save").addEventListener("click", () => {
  const set = document.querySelector("main").id;
  const data = JSON.stringify({set, choices: choices()}, null, 1);
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([data], {type: "application/json"}));
  link.download = `choices-${set}.json`;
  link.click();
});
count();
"""


class Case(NamedTuple):
    """What an annotator sees: no scorer, no score."""

    question: str
    image: Image | str
    a1: str
    a2: str


def annotation_page(name: str, cases: Sequence[Case]) -> str:
    """The page of one set of cases, numbered from 1.

    Args:
        name: of the set; the file of choices has it in its name.
        cases: in order.
    """
    body = [_INTRODUCTION, f'<main id="{escaped(name)}">']
    for number, case in enumerate(cases, start=1):
        choices = "".join(
            f'<label><input type="radio" name="case-{number}" value="{value}"> {value}</label>'
            for value in ("A1", "A2", "Tie")
        )
        body.append(
            f"<section>\n<h2>{number}. {escaped(case.question)}</h2>\n"
            f'<div class="case">{tag(case.image)}\n'
            f'<div class="answer"><b>A1</b>\n{escaped(case.a1)}</div>\n'
            f'<div class="answer"><b>A2</b>\n{escaped(case.a2)}</div></div>\n'
            f'<fieldset name="{number}">{choices}</fieldset>\n</section>'
        )
    body.append('</main>\n<footer><button id="save">Download the choices</button>')
    body.append('<span id="made" class="muted"></span></footer>')
    return page("Which answer is truer to the picture?", "\n".join(body), _STYLE, _SCRIPT)
