"""Reading a run: what is on disk comes back, as arrays, and only what is needed is read."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from made_runs import make_run

import lookback
from lookback.runs import open_run, open_runs
from lookback.runs import run as reader
from lookback.runs.layout import CANDIDATES, RunError, replacing, write_table
from lookback.signals import SIGNALS


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return make_run(
        tmp_path_factory.mktemp("run"),
        items=13,
        n=6,
        failed=(4,),
        empty=((0, 1), (12, 0)),
        recorded=("vauq", "usc@5"),
    )


def rows_of(run):
    files = sorted((run.path / "candidates").glob("*.parquet"))
    return [row for file in files for row in pq.read_table(file).to_pylist()]


def test_arrays_are_what_the_files_say(run):
    rows = rows_of(run)
    assert run.places.tolist() == [p for p in range(13) if p != 4]
    assert run.n == 6
    quality = run.quality()
    for row in rows:
        place = run.places.tolist().index(row["item"])
        assert quality[place, row["index"]] == row["quality"]
    assert run.signal("visual_lookback").tolist() == [
        x for row in rows for x in row["visual_lookback"]
    ]


@pytest.mark.parametrize("scorer", ["lookback", "self_certainty", "visual_lookback", "majority"])
@pytest.mark.parametrize("n", [1, 5, 6])
def test_scores_are_those_of_each_items_candidates(run, scorer, n):
    found = run.scores(scorer, n)
    assert found.shape == (12, n)
    for row in range(12):
        expected = run.candidates(row)[:n].scores(scorer)
        np.testing.assert_allclose(found[row], expected, rtol=1e-12)


def test_settings_of_the_family_count_unless_others_are_given(run):
    plain, same = run.scores("lookback"), run.scores("lookback", alpha=0.5, lam=1.25)
    np.testing.assert_array_equal(plain, same)
    assert not np.allclose(plain, run.scores("lookback", alpha=3.0), equal_nan=True)


def test_an_empty_response_has_no_score_but_a_quality(run):
    assert np.isnan(run.scores("lookback")[0, 1])
    assert np.isnan(run.scores("lookback")[-1, 0])
    assert np.isfinite(run.quality()).all()


def test_candidates_come_back_without_loss(run):
    rows = [row for row in rows_of(run) if row["item"] == 7]
    cands = run.candidates(run.places.tolist().index(7))
    assert [c.text for c in cands] == [row["text"] for row in rows]
    for name in ("token_ids", *SIGNALS):
        assert [getattr(c, name).tolist() for c in cands] == [row[name] for row in rows]
    assert cands.defaults == {"alpha": 0.5, "lam": 1.25}
    assert cands.prompt_ids.tolist() == [1, 2, 3]


def test_recorded_scores_are_found_by_number(run):
    assert run.recorded == ["usc@5", "vauq"]
    assert run.scores("vauq", 3).shape == (12, 3)
    np.testing.assert_array_equal(run.scores("vauq", 6)[:, :3], run.scores("vauq", 3))
    assert run.scores("usc", 5).shape == (12, 5)
    with pytest.raises(RunError, match=r"no usc scores for N = 6 .*usc@5, vauq.*--scorers usc@6"):
        run.scores("usc", 6)  # those of five say nothing about six
    with pytest.raises(RunError, match="no clipscore scores"):
        run.scores("clipscore", 5)


def test_opening_reads_no_token_columns(run, monkeypatch):
    read = []
    original = reader.read_table

    def read_table(folder, table, shard, names):
        read.append(names)
        return original(folder, table, shard, names)

    monkeypatch.setattr(reader, "read_table", read_table)
    again = open_run(run.path)
    assert read == []
    again.quality()
    assert again.ids
    assert again.texts
    assert read
    assert not any(set(names or ()) & {"tokens", *SIGNALS} for names in read)
    again.signal("visual_lookback")
    assert read[-1] == ["visual_lookback"]


def test_one_line_of_pandas(run):
    import pandas as pd

    frame = pd.read_parquet(run.path / "candidates")
    assert len(frame) == 12 * 6
    assert frame.visual_lookback[0].dtype == np.float32
    schema = pq.read_schema(next((run.path / "candidates").glob("*.parquet")))
    assert schema.field("log_prob").type == pa.list_(pa.float32())
    assert schema.names == CANDIDATES.names


def test_a_folder_of_runs_stands_for_them(tmp_path):
    make_run(tmp_path / "a", items=2, n=2)
    make_run(tmp_path / "b", items=2, n=2, seed=43)
    assert [run.seed for run in open_runs([tmp_path])] == [42, 43]
    assert lookback.open_run(tmp_path / "a").seed == 42


def test_what_is_no_run_says_so(tmp_path):
    with pytest.raises(RunError, match=r"no run in .*manifest\.json"):
        open_run(tmp_path)
    with pytest.raises(RunError, match="neither it nor a folder in it"):
        open_runs([tmp_path])
    (tmp_path / "manifest.json").write_text("{")
    with pytest.raises(RunError, match="is no manifest"):
        open_run(tmp_path)


def test_a_broken_shard_is_named(tmp_path):
    run = make_run(tmp_path / "a", items=2, n=2)
    (tmp_path / "a" / "candidates" / "00000.parquet").write_bytes(b"PAR1 no")
    with pytest.raises(RunError, match=r"is damaged: candidates/00000\.parquet is damaged \(7 "):
        run.quality()  # opened before, so seen when it is read


def test_a_file_is_written_whole_or_not_at_all(tmp_path):
    path = tmp_path / "file"
    path.write_text("before")

    def interrupted():
        with replacing(path) as temporary:
            temporary.write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


def test_a_thousand_items_stay_under_sixty_megabytes(tmp_path):
    """1,000 x 25 x 60 tokens, as 100 shards like this one, with signals that do not compress."""
    rng = np.random.default_rng(0)
    words = [f" word{i}" for i in range(5000)]
    rows = []
    for item in range(10):
        for index in range(25):
            ids = (5000 * rng.beta(0.3, 3, 60)).astype(int)
            tokens = [words[i] for i in ids]
            rows.append(
                {
                    "item": item,
                    "index": index,
                    "text": "".join(tokens),
                    "finish": "end",
                    "quality": float(rng.uniform()),
                    "length": 60,
                    "token_ids": ids.tolist(),
                    "tokens": tokens,
                }
                | {name: rng.normal(size=60).astype(np.float32) for name in SIGNALS}
            )
    write_table(tmp_path, "candidates", 0, rows)
    size = (tmp_path / "candidates" / "00000.parquet").stat().st_size
    assert 100 * size < 60e6
