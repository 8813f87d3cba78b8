"""The folder of cases: what is written is read, what was changed is refused."""

import json
from dataclasses import replace

import pytest
from made_cases import SCORERS, make_cases, make_folder

from lookback.annotation.cases import CASES, KEY, Cases, read_cases, read_key, study_id


def test_what_is_written_is_read(tmp_path):
    made = make_cases(texts=("a \ud800 {} {}", "</script> é \x00 {} {}"))
    folder = make_folder(tmp_path, made, {(1, 2): (1.0, None)})
    assert read_cases(folder) == made
    key = read_key(folder)
    assert (key.study, key.model, key.benchmark, key.n) == (
        *(made.study, "made-up", "Scenes Caption", 25),
    )
    assert set(key.cases) == {case.place for case in made.cases}
    one = key.cases[1, 2]  # odd: the second answer is LookBack's
    assert (one.id, one.scorers, one.quality) == ("id-1-2", SCORERS[::-1], (None, 1.0))


def test_the_raters_file_has_no_secret(tmp_path):
    text = (make_folder(tmp_path, make_cases()) / CASES).read_text("utf-8")
    for secret in ("ookback", "ookBack", "certainty", "SC", "quality", "scorer"):
        assert secret not in text


def test_the_studys_name_follows_from_the_texts():
    cases = make_cases().cases
    changed = (replace(cases[0], answers=("other", cases[0].answers[1])), *cases[1:])
    assert study_id(changed) != study_id(cases) == study_id(list(cases))


def test_damage_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="lookback study disagreements RUN"):
        read_cases(tmp_path)
    folder = make_folder(tmp_path / "x", make_cases())
    whole = json.loads((folder / CASES).read_text())

    def broken(name, text):
        (folder / name).write_text(text)
        return pytest.raises(ValueError, match=f"{name}' is not as .* writes it")

    for text in ("", "[1]", "{", '"x"', '{"format": 2}', '{"format": 1, "cases": []}', "[" * 9999):
        with broken(CASES, text):
            read_cases(folder)
        with broken(KEY, text):
            read_key(folder)
    other = whole | {"cases": whole["cases"][:-1]}
    with broken(CASES, json.dumps(other)):
        read_cases(folder)
    twice = (make_cases().cases[0],) * 2
    with broken(CASES, json.dumps(whole | {"cases": [one.to_dict() for one in twice]})):
        read_cases(folder)


def test_sets(tmp_path):
    cases = make_cases((3, 2))
    assert isinstance(cases, Cases)
    assert cases.sets == [1, 2]
    assert [case.case for case in cases.of(2)] == [1, 2]
