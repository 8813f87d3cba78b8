"""A run that is not what was written: no number comes from it, and the same command mends it."""

import json
import math
import os
import shutil
from dataclasses import replace

import pytest
from made_runs import make_run
from test_producing import results
from toy_engine import ToyEngine

from lookback.runs import Run
from lookback.runs.layout import RunError, shard_path, write_table
from lookback.runs.manifest import Manifest
from lookback.runs.plan import Plan
from lookback.runs.records import forget, read_record, record_path
from lookback.runs.start import start
from lookback.runs.verify import verify
from lookback.studies import STUDIES
from lookback.studies.common.base import StudyError

PLAN = Plan("scenes-vqa", limit=23, n=4, scorers=("usc@2",))
TABLES = ("items", "candidates", "scores/usc@2")
LINES = [
    *("run", "--benchmark", "scenes-vqa", "--limit", 23, "-n", 4, "--scorers", "usc@2"),
    *("--out", "run"),
]


@pytest.fixture(autouse=True)
def engine(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    made = ToyEngine()
    monkeypatch.setattr(Plan, "load_engine", lambda plan: made)
    return made


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Plan, "load_engine", lambda plan: ToyEngine())
        return start(PLAN, tmp_path_factory.mktemp("whole") / "run").run.path


@pytest.fixture
def folder(whole, tmp_path):
    """A copy of a finished run of three shards."""
    return shutil.copytree(whole, tmp_path / "run")


def remove(folder, table, shard=1):
    shard_path(folder, table, shard).unlink()


def cut(folder, table):
    path = shard_path(folder, table, 1)
    path.write_bytes(path.read_bytes()[:-1])


def flip(folder, table):
    path = shard_path(folder, table, 1)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)


def empty(folder, table):
    shard_path(folder, table, 1).write_bytes(b"")


def exchange(first, second):
    kept = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(kept)


def swap(folder, table):
    exchange(shard_path(folder, table, 0), shard_path(folder, table, 1))


def change_rows(folder, table):
    """Another content in a sound file, of another size: one of the same is for the checksum."""
    rows = Run(folder).table(table).to_pylist()
    write_table(folder, table, 1, [row for row in rows if row["item"] // 10 == 1][:5])


def assert_refused(command, folder, file):
    """No study prints a number; one line names the file and what to do."""
    for name in ("oracle", "main"):
        status, out, err = command("study", name, folder)
        assert (status, out, err.count("\n")) == (1, "", 1)
        assert file in err
        assert "the same `lookback run` as before makes it again" in err
    assert not (folder.parent / "studies").exists()


def assert_mended(command, folder, whole, files):
    """The same command makes again what was lost, says so, and all is as it was."""
    status, out, err = command(*LINES)
    assert (status, out) == (0, "run: 23 items, 92 candidates, 0 failed\n")
    for file in files:
        assert file in err
    assert results(folder) == results(whole)
    assert verify(folder).problems == []


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("damage", [remove, cut, empty, change_rows])
def test_a_table_that_is_lost_or_changed(command, folder, whole, engine, damage, table):
    damage(folder, table)
    file = f"{table}/00001.parquet"
    assert [one.file for one in verify(folder).problems] == [file]
    with pytest.raises(RunError, match=f"{file} is "):
        Run(folder)
    assert_refused(command, folder, file)
    engine.sampled.clear()
    assert_mended(command, folder, whole, [file])
    assert len(engine.sampled) == (0 if table == "scores/usc@2" else 10)  # no more than was lost


@pytest.mark.parametrize("table", TABLES)
def test_a_flipped_bit_is_seen_when_the_table_is_read(command, folder, whole, table):
    flip(folder, table)
    file = f"{table}/00001.parquet"
    run = Run(folder)  # names and sizes are right
    with pytest.raises(RunError, match=rf"{file} is damaged \(its sha256"):
        run.table(table)
    others = [other for other in TABLES if other != table]
    assert all(len(run.table(other)) for other in others)
    if table == "candidates":
        assert_refused(command, folder, file)
    status, out, err = command("runs", "verify", folder)
    assert (status, out.count("1 problems"), err.count("\n")) == (1, 1, 1)
    assert file in err
    assert_mended(command, folder, whole, [file])


@pytest.mark.parametrize("table", TABLES)
def test_swapped_shards(command, folder, whole, table):
    swap(folder, table)
    files = [f"{table}/0000{shard}.parquet" for shard in (0, 1)]
    assert [one.file for one in verify(folder).problems] == files
    with pytest.raises(RunError, match=files[0]):
        Run(folder).table(table)
    assert_mended(command, folder, whole, files)


def scale(rows):
    return json.dumps([row | {"ms": 100 * row["ms"]} for row in rows])


def lose_a_key(rows):
    return json.dumps([{name: row[name] for name in row if name != "stage"} for row in rows])


def set_ms(value):
    def change(rows):
        return json.dumps([*rows[:-1], rows[-1] | {"ms": value}])

    return change


DAMAGED_TIMINGS = [
    *(scale, lose_a_key, *map(set_ms, (math.nan, math.inf, -1.0, "fast", None, 10**400))),
    *(lambda rows: "[1]", lambda rows: "3", lambda rows: "[" * 100_000, lambda rows: ""),
    lambda rows: json.dumps([row | {"item": row["item"] + 10} for row in rows]),
]


def change_timings(folder, change, stage="sample"):
    path = folder / "timings" / f"{stage}-00001.json"
    path.write_text(change(json.loads(path.read_text())))
    return f"timings/{path.name}"


@pytest.mark.parametrize("damage", DAMAGED_TIMINGS)
def test_timings_that_are_changed(command, folder, whole, engine, damage):
    file = change_timings(folder, damage)
    assert [one.file for one in verify(folder).problems] == [file]
    run = Run(folder)  # no other number comes from timings
    assert run.quality().shape == (23, 4)
    with pytest.raises(RunError, match=file):
        run.timings()
    status, out, err = command("study", "overhead", folder)
    assert (status, out, err.count("\n")) == (1, "", 1)
    assert file in err
    engine.sampled.clear()
    assert_mended(command, folder, whole, [file])
    assert engine.sampled == []  # results that are sound are not made again
    assert {row["item"] for row in Run(folder).timings() if row["stage"] == "sample"} == {
        *range(10),
        *range(20, 23),
    }


@pytest.mark.parametrize("damage", DAMAGED_TIMINGS[1:])
def test_timings_without_a_record_are_looked_at(folder, damage):
    """Runs that were begun before timings had records have none."""
    shutil.rmtree(folder / "timings" / "shards")
    assert len(Run(folder).timings()) == 2 * 23
    assert (verify(folder).problems, verify(folder).unrecorded_timings) == ([], 6)
    file = change_timings(folder, damage, "usc@2")
    assert [one.file for one in verify(folder).problems] == [file]
    with pytest.raises(RunError, match=file):
        Run(folder).timings()


@pytest.mark.parametrize(
    ("change", "sound"),
    [
        *(({"ms": ms}, True) for ms in (0, 1e12)),
        *(({"ms": ms}, False) for ms in (True, 1.1e12)),
        ({"responses": 0}, True),
        *(({"responses": count}, False) for count in (-1, 2.0, True, None)),
        *(({"item": item}, True) for item in (10, 19)),
        *(({"item": item}, False) for item in (9, 20, 10.0, None)),
        *(({"stage": stage}, False) for stage in ("sample", 3)),
    ],
)
def test_each_number_of_timings_without_a_record_is_looked_at(folder, change, sound):
    shutil.rmtree(folder / "timings" / "shards")
    file = change_timings(folder, lambda rows: json.dumps([rows[0] | change, *rows[1:]]), "usc@2")
    assert [one.file for one in verify(folder).problems] == ([] if sound else [file])


def test_timings_and_their_records_that_are_lost_or_too_many(command, folder, whole):
    timings = folder / "timings"
    (timings / "sample-00000.json").unlink()
    (timings / "shards" / "00001.json").write_text("{")
    shutil.copy(timings / "shards" / "00000.json", timings / "shards" / "00002.json")
    assert [one.file for one in verify(folder).problems] == [
        "timings/sample-00000.json",
        "timings/shards/00001.json",
        "timings/shards/00002.json",
    ]
    status, _, err = command(*LINES)
    assert (status, err.count("timings/")) == (0, 3)
    assert (verify(folder).problems, results(folder)) == ([], results(whole))
    assert verify(folder).unrecorded_timings == 5
    for name in ("sample-00003.json", "other-00000.json", "shards/00003.json"):
        (timings / name).write_text("[]")
        assert [one.file for one in verify(folder).problems] == [f"timings/{name}"]
        (timings / name).unlink()


def test_timings_that_cannot_be_verified_are_said(command, folder, tmp_path):
    shutil.rmtree(folder / "timings" / "shards")
    status, out, err = command("runs", "verify", folder)
    assert (status, out.count("all as written"), err.count("\n")) == (0, 1, 1)
    assert "timings" in err
    (found,) = json.loads(command("runs", "verify", folder, "--json")[1])
    assert (found["ok"], found["unrecorded_timings"]) == (True, 6)
    notes = json.loads(command("study", "overhead", folder, "--json")[1])["notes"]
    assert sum("6 of 6" in note for note in notes) == 1


def test_damaged_timings_fail_their_study_alone(command, folder, tmp_path, monkeypatch):
    few = {name: STUDIES.get(name) for name in ("oracle", "overhead", "seeds")}
    monkeypatch.setattr(STUDIES, "all", lambda: few)
    file = change_timings(folder, set_ms(math.nan))
    status, out, _ = command("study", "all", folder, "--items", 0, "--json")
    missing = json.loads(out)["not_done"]
    assert (status, [name for name, why in missing.items() if file in why]) == (0, ["overhead"])
    assert (tmp_path / "studies" / "oracle.csv").exists()


def test_shards_swapped_with_their_records(command, folder, whole):
    for table in TABLES:
        swap(folder, table)
    exchange(record_path(folder, 0), record_path(folder, 1))
    assert_refused(command, folder, "shards/00000.json is of another shard (items 10 to 19)")
    assert_mended(command, folder, whole, ["shards/00000.json", "shards/00001.json"])


@pytest.mark.parametrize("change", [{"first": 9}, {"last": 20}])
def test_a_record_that_reaches_into_another_shard(command, folder, whole, change):
    replace(read_record(folder, 1), **change).write(folder, 1)
    assert_refused(command, folder, "shards/00001.json is of another shard")
    assert_mended(command, folder, whole, ["shards/00001.json"])


def test_a_shard_of_another_run(command, folder, whole, tmp_path):
    other = start(replace(PLAN, seed=7), tmp_path / "other").run
    for table in TABLES:
        shutil.copy(shard_path(other.path, table, 2), shard_path(folder, table, 2))
    shutil.copy(record_path(other.path, 2), record_path(folder, 2))
    assert_refused(command, folder, f"shards/00002.json is of another run ({other.id})")
    assert_mended(command, folder, whole, ["shards/00002.json"])


def test_a_shard_that_is_gone_altogether(command, folder, whole):
    for table in TABLES:
        remove(folder, table, 2)
    record_path(folder, 2).unlink()
    assert_refused(command, folder, "shards/00002.json is missing")
    assert_mended(command, folder, whole, [])


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", "{}", "9" * 5000, "[" * 100_000, '{"tables": {}}', "\udcff"],
)
def test_a_record_that_is_none(command, folder, whole, text):
    record_path(folder, 1).write_bytes(text.encode("utf-8", "surrogateescape"))
    assert_refused(command, folder, "shards/00001.json cannot be read")
    assert_mended(command, folder, whole, ["shards/00001.json"])


@pytest.mark.parametrize(
    "change",
    [
        {"first": "10"},
        {"last": None},
        {"run": 3},
        {"more": 1},
        {"tables": []},
        {"tables": {"items": {"rows": 10, "bytes": 1, "sha256": ""}}},
        {"tables": {"items": 1, "candidates": 2}},
        {"tables": {table: {"rows": 1.5, "bytes": 1, "sha256": ""} for table in TABLES}},
        {"tables": {table: {"rows": 1, "bytes": True, "sha256": ""} for table in TABLES}},
        {"tables": {table: {"rows": 1, "bytes": 1, "sha256": 0} for table in TABLES}},
    ],
)
def test_a_record_of_another_shape(folder, change):
    path = record_path(folder, 1)
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(RunError, match=r"shards/00001\.json cannot be read") as caught:
        Run(folder)
    assert "\n" not in str(caught.value)


def test_a_finished_run_has_every_scorers_table(folder):
    record = read_record(folder, 1)
    tables = {name: one for name, one in record.tables.items() if name != "scores/usc@2"}
    replace(record, tables=tables).write(folder, 1)
    with pytest.raises(RunError, match=r"scores/usc@2/00001\.parquet was never recorded"):
        Run(folder)


def test_a_record_of_a_table_elsewhere_touches_nothing_there(command, folder, whole, tmp_path):
    (tmp_path / "00001.parquet").write_text("mine")
    record = read_record(folder, 1)
    tables = dict(record.tables) | {"..": record.tables["items"]}
    replace(record, tables=tables).write(folder, 1)
    assert_refused(command, folder, "shards/00001.json names a table that the run has not (..)")
    assert_mended(command, folder, whole, ["shards/00001.json"])
    assert (tmp_path / "00001.parquet").read_text() == "mine"


def test_a_lost_record_is_the_only_problem(folder):
    record_path(folder, 2).unlink()
    assert [one.file for one in verify(folder).problems] == ["shards/00002.json"]


@pytest.mark.parametrize("change", [{"items": 22}, {"shards": [0, 1, 2, 3]}])
def test_a_run_of_other_items_is_not_gone_on_with(folder, change):
    before = replace(Manifest.read(folder), status="running", **change)
    before.write(folder)
    with pytest.raises(RunError, match="now there are 23 in 3: were its data changed"):
        start(PLAN, folder)
    assert Manifest.read(folder) == replace(before, shards=list(before.shards))


def test_a_manifest_that_says_failed_throws_no_candidates_away(folder, whole, engine):
    replace(Manifest.read(folder), status="failed").write(folder)
    with pytest.raises(RunError, match="holds another run"):
        start(replace(PLAN, seed=7), folder)
    assert results(folder) == results(whole)
    assert (start(PLAN, folder).worked, engine.sampled) == (0, [])


@pytest.mark.parametrize("items", [22, 24])
def test_a_manifest_with_another_number_of_items(folder, items):
    replace(Manifest.read(folder), items=items).write(folder)
    with pytest.raises(RunError, match=rf"manifest\.json names {items} items, its shards have 23"):
        Run(folder)


@pytest.mark.parametrize(
    "file",
    [
        "candidates/00003.parquet",
        "items/00099.parquet",
        "candidates/00001 (copy).parquet",
        "scores/usc@2/00003.parquet",
        "scores/vauq/00000.parquet",
        "looks/00000.parquet",
        "shards/00003.json",
    ],
)
def test_a_file_too_many_is_named_and_left(command, folder, whole, file):
    path = folder / file
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(shard_path(folder, "candidates", 0).read_bytes())
    before = Manifest.read(folder)
    for arguments in (("study", "oracle", "run"), LINES):
        status, out, err = command(*arguments)
        assert (status, out) == (1, "")
        assert f"{file} is no part of this run: move it away" in err
    assert path.exists()
    assert Manifest.read(folder) == before
    path.unlink()
    assert_mended(command, folder, whole, [])


def test_files_that_nobody_reads_do_not_matter(command, folder):
    for file in ("candidates/._00000.parquet", "notes.txt", "candidates/notes.txt", ".x.2024"):
        (folder / file).write_text("mine")
    assert verify(folder).problems == []
    assert command(*LINES)[0] == 0
    assert (folder / ".x.2024").read_text() == "mine"


def test_several_problems_are_counted(command, folder):
    remove(folder, "items", 0)
    remove(folder, "candidates", 2)
    _, _, err = command("study", "oracle", folder)
    assert "items/00000.parquet is missing" in err
    assert "(and 1 more: `lookback runs verify` lists them)" in err
    status, out, err = command("runs", "verify", folder)
    assert (status, err.count("\n")) == (1, 2)
    assert out.endswith("finished, 3 shards, 9 tables, 2 problems\n")


def test_remade_candidates_have_their_scores_made_again(folder, engine, monkeypatch):
    """Elsewhere they may come out otherwise: scores of the old ones would be wrong."""
    asked = []
    generate = ToyEngine.generate
    monkeypatch.setattr(
        ToyEngine,
        "generate",
        lambda self, *given, **more: asked.append(1) or generate(self, *given, **more),
    )
    remove(folder, "candidates")
    assert start(PLAN, folder).worked == 20
    assert len(asked) >= 10


@pytest.mark.parametrize("table", ["items", "candidates"])
def test_nothing_stays_of_a_shard_that_is_forgotten(folder, table):
    forget(folder, 1, [table])
    assert list(folder.rglob("*00001.*")) == []
    assert len(list(folder.rglob("*00002.*"))) == 3 + 1 + 2 + 1  # tables, timings, their records


class TestAKillBetweenTwoTables:
    @pytest.fixture
    def killed(self, folder):
        """As it lies after a kill in the second shard: candidates, and no record."""
        for shard in (1, 2):
            record_path(folder, shard).unlink()
        remove(folder, "items", 1)
        replace(Manifest.read(folder), status="running").write(folder)
        return Run(folder)

    def test_no_study_sees_the_half(self, killed, tmp_path):
        assert len(killed.ids) == 10
        seen = []
        for name, study in STUDIES.all().items():
            try:
                study([killed])
            except StudyError as error:  # needs other runs
                seen.append((name, str(error)))
        assert len(seen) < len(STUDIES.names()) - 5

    def test_a_study_says_that_it_is_of_a_part(self, killed, command):
        status, out, err = command("study", "oracle", killed.path, "--json")
        assert (status, err.count("is not finished: the numbers are of a part")) == (0, 1)
        assert max(row["items"] for row in json.loads(out)["rows"]) == 10

    def test_it_can_be_verified(self, killed, command):
        status, out, _ = command("runs", "verify", killed.path)
        assert (status, out.split(": ")[1]) == (
            0,
            "running, 1 of 3 shards, 3 tables, all as written\n",
        )

    def test_the_same_command_goes_on(self, killed, whole):
        start(PLAN, killed.path)
        assert results(killed.path) == results(whole)


class TestVerify:
    def test_json(self, folder, command):
        status, out, _ = command("runs", "verify", folder, "--json")
        (found,) = json.loads(out)
        size = sum(path.stat().st_size for path in folder.rglob("*.parquet"))
        assert status == 0
        assert found == {
            "run": str(folder),
            "ok": True,
            "status": "finished",
            "shards": 3,
            "of": 3,
            "files": 9,
            "bytes": size,
            "unrecorded_timings": 0,
            "problems": [],
        }
        flip(folder, "items")
        status, out, _ = command("runs", "verify", folder, "--json")
        (found,) = json.loads(out)
        assert (status, found["ok"]) == (1, False)
        (problem,) = found["problems"]
        assert problem["file"] == "items/00001.parquet"
        assert set(problem) == {"file", "problem", "remedy"}

    def test_a_folder_of_runs(self, folder, command, tmp_path):
        make_run(tmp_path / "other", items=3, n=2, recorded=("vauq",))
        status, out, _ = command("runs", "verify", tmp_path)
        assert (status, out.count("all as written")) == (0, 2)
        assert command("runs", "verify", tmp_path / "nowhere")[0] == 1


@pytest.mark.parametrize("file", ["manifest.json", "shards/00001.json", "items/00001.parquet"])
def test_a_pipe_in_place_of_a_file_is_not_waited_for(command, folder, file):
    (folder / file).unlink()
    os.mkfifo(folder / file)
    for arguments in (("study", "oracle", folder), ("runs", "verify", folder)):
        status, _, err = command(*arguments)
        assert (status, err.count("\n")) == (1, 1)
        assert file in err


@pytest.mark.parametrize(
    "changes",
    [
        {"defaults": {"alpha": 0.5, "lam": 9.0}},
        {"title": "Another"},
        {"created": "2020-01-01T00:00:00+00:00"},
        {"checksum": "0" * 64},
        {"checksum": None},
    ],
)
def test_a_manifest_with_one_word_changed_gives_no_numbers(command, folder, changes):
    path = folder / "manifest.json"
    data = {
        name: value for name, value in (json.loads(path.read_text()) | changes).items() if value
    }
    path.write_text(json.dumps(data))
    for arguments in (("study", "oracle", folder), ("runs", "verify", folder), LINES):
        status, out, err = command(*arguments)
        assert (status, out, err.count("\n")) == (1, "", 1)
        assert "is not as it was written" in err
