"""Data of one's own: what is read from a file, what is left out of it, and how it is scored."""

import hashlib
import json
import math
import pickle
import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from engines.reference import noise

from lookback.benchmarks import get_benchmark
from lookback.benchmarks.base import Fingerprinted
from lookback.benchmarks.evaluate import evaluate, list_benchmarks
from lookback.benchmarks.files import MissingFile
from lookback.benchmarks.metrics import METRICS
from lookback.benchmarks.own import own_name
from lookback.benchmarks.own_file import read_lines
from lookback.io.limits import LimitError

GOOD = {"image": "cat.png", "question": "What is this?"}


@pytest.fixture
def folder(tmp_path):
    noise(0).save(tmp_path / "cat.png")
    noise(1).save(tmp_path / "dog.png")
    return tmp_path


@pytest.fixture
def own(folder):
    def own(*lines, name="mine.jsonl", metric=None):
        texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
        (folder / name).write_text("\n".join(texts), encoding="utf-8")
        return get_benchmark("own", folder / name, **({"metric": metric} if metric else {}))

    return own


def table(benchmark):
    return [(item.id, item.question, item.truth) for item in benchmark.items()]


def test_a_line_is_an_item(own):
    mine = own(
        GOOD | {"id": "a", "answers": ["a cat", "cat"], "metric": "vqa"},
        GOOD | {"id": 7.0, "answers": 3},
        "",
        GOOD | {"answers": [2.0, 2.5, "two"]},
    )
    asked = GOOD["question"]
    assert table(mine) == [
        ("a", asked, {"answers": ["a cat", "cat"], "metric": "vqa"}),
        ("7", asked, {"answers": ["3"], "metric": "exact"}),
        ("4", asked, {"answers": ["2", "2.5", "two"], "metric": "exact"}),
    ]
    assert mine.items()[0].image.tobytes() == noise(0).tobytes()
    assert (mine.name, mine.title, mine.default_split) == ("own:mine", "mine", "all")
    assert len(mine.items(limit=2)) == 2
    assert pickle.loads(pickle.dumps(mine.items()[1])).image.size == noise().size


def test_images_are_found_from_anywhere(own, monkeypatch, tmp_path_factory):
    uri = "data:image/png;base64,AAAA"
    message = {"role": "user", "content": [{"type": "image", "image": "dog.png"}]}
    message["content"] += [{"type": "text", "text": "And this?", "source": True}]
    video = {"type": "video", "video": ["cat.png", "dog.png"]}
    mine = own(
        GOOD,
        {"image": ["cat.png", "dog.png"], "question": "Which?"},
        {"messages": [message]},
        {"messages": [{"role": "user", "content": [video, {"type": "text", "text": "Then?"}]}]},
        {"image": uri, "question": "Data?"},
        {"question": "No image?"},
    )
    items = mine.items()
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    cat, dog = noise(0).tobytes(), noise(1).tobytes()
    shown = [[one.tobytes() for one in items[i].conversation.images] for i in range(3)]
    assert shown == [[cat], [cat, dog], [dog]]
    assert [[f.tobytes() for f in v] for v in items[3].conversation.videos] == [[cat, dog]]
    assert items[2].question == "And this?"
    assert items[2].conversation.source().texts == {0}
    with pytest.raises(ValueError, match="data:image/png;base64,AAAA' is not an image"):
        _ = items[4].image
    assert items[5].image is None
    assert mine.left_out() == []


def lines_that_name(name):
    """Every way for a line to name a file."""
    text = {"type": "text", "text": "What?"}
    parts = [{"type": "image", "image": name}]
    parts += [{"type": "video", "video": shown} for shown in (name, [name])]
    return [
        {"image": name, "question": "What?"},
        {"image": ["cat.png", name], "question": "What?"},
        *({"messages": [{"role": "user", "content": [part, text]}]} for part in parts),
    ]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("/etc/passwd", "an absolute path"),
        ("../secret.png", "a path with '..'"),
        ("a/../../secret.png", "a path with '..'"),
        ("a\\..\\..\\secret.png", "a path with '..'"),
        ("C:\\secret.png", "an absolute path"),
        ("~/secret.png", "a path from a home folder"),
        ("out.png", "a symbolic link to elsewhere"),
        ("out/secret.png", "a symbolic link to elsewhere"),
    ],
)
def test_what_a_line_names_stays_in_the_folder(own, folder, monkeypatch, name, said):
    elsewhere = folder.parent / f"{folder.name}-elsewhere"
    elsewhere.mkdir()
    noise(2).save(elsewhere / "secret.png")
    (folder / "out.png").symlink_to(elsewhere / "secret.png")
    (folder / "out").symlink_to(elsewhere)
    lines = lines_that_name(name)
    made = own(GOOD, *lines)
    assert len(made.items()) == 1
    left_out = made.left_out()
    assert len(left_out) == len(lines)
    for number, line in enumerate(left_out, start=2):
        assert line.startswith(f"line {number}: {name!r} is {said}: files that data name stay in")
    monkeypatch.setenv("LOOKBACK_ALLOW_OUTSIDE", "1")
    assert len(own(GOOD, *lines, name="again.jsonl").items()) == 1 + len(lines)


def test_a_link_and_a_folder_inside_are_inside(own, folder):
    (folder / "deep").mkdir()
    noise(3).save(folder / "deep" / "a..b.png")
    (folder / "link.png").symlink_to(folder / "deep" / "a..b.png")
    for name in ("link.png", "deep/a..b.png", "./cat.png"):
        (item,) = own({"image": name, "question": "What?"}).items()
        assert item.image.size == noise(3).size


def test_a_video_file_of_a_conversation_is_found_from_anywhere(own, folder):
    clip = lines_that_name("clip.mp4")[3]
    (item,) = own(clip).items()
    assert item.messages[0]["content"][0]["video"] == str(folder / "clip.mp4")


def test_a_run_may_be_allowed_outside_by_an_option(own, folder, command, monkeypatch):
    monkeypatch.setenv("LOOKBACK_ALLOW_OUTSIDE", "0")
    own({"id": "1", "image": str(folder / "cat.png"), "question": "What?", "answers": "a cat"})
    (folder / "said.jsonl").write_text('{"id": "1", "response": "cat"}')
    asked = ("evaluate", "own", "--data", folder / "mine.jsonl")
    asked += ("--responses", folder / "said.jsonl")
    status, _, err = command(*asked)
    assert status == 1
    assert "an absolute path" in err
    assert "--allow-outside" in err
    status, out, _ = command(*asked, "--allow-outside")
    assert (status, "100" in out) == (0, True)


def test_a_file_is_of_limited_size(own, folder, monkeypatch):
    monkeypatch.setenv("LOOKBACK_MAX_DATA_MIB", "1")
    large = own(GOOD, json.dumps(GOOD | {"question": "a" * 2**20}))
    with pytest.raises(
        LimitError, match=r"mine\.jsonl' is too large: 1\.0 MiB.*LOOKBACK_MAX_DATA_MIB"
    ):
        large.items()
    path = folder / "packed.parquet"
    for column in (["a" * 2**20] * 3, ["a" * 2**15] * 1000, [None] * 20_000):
        pq.write_table(pa.table({"question": pa.array(column, pa.string())}), path)
        assert path.stat().st_size < 2**18
        with pytest.raises(LimitError, match=r"packed\.parquet', unpacked, is too large"):
            get_benchmark("own", path).items()


def shared(count, size=2**20):
    """Strings that are all the same one, as a writer keeps them: once, and indices."""
    return pa.DictionaryArray.from_arrays(pa.array([0] * count, pa.int32()), pa.array(["a" * size]))


def in_one_list(values):
    return pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values)


@pytest.mark.parametrize(
    ("column", "limit"),
    [
        (shared(40), "LOOKBACK_MAX_PACKED_RATIO"),
        (shared(3000), "LOOKBACK_MAX_DATA_MIB"),
        (in_one_list(shared(40)), "LOOKBACK_MAX_PACKED_RATIO"),
        (in_one_list(shared(3000)), "LOOKBACK_MAX_DATA_MIB"),
        (shared(1, 20 * 2**20), "LOOKBACK_MAX_PACKED_RATIO"),  # packed by zstd alone
        (in_one_list(pa.repeat(0, 2_000_000)), "LOOKBACK_MAX_DATA_MIB"),
        (pa.nulls(2_000_000), "LOOKBACK_MAX_DATA_MIB"),
    ],
)
@pytest.mark.parametrize("store_schema", [True, False])
def test_a_small_parquet_file_that_holds_much_is_refused(
    folder, column, limit, store_schema, monkeypatch
):
    monkeypatch.setenv("LOOKBACK_MAX_DATA_MIB", "64")
    path = folder / "packed.parquet"
    table = pa.table({"question": pa.array(["What?"] * len(column)), "answers": column})
    settings = {"compression": "zstd", "dictionary_pagesize_limit": 2**30}
    pq.write_table(table, path, store_schema=store_schema, **settings)
    assert path.stat().st_size < 2**17
    with pytest.raises(LimitError, match=limit):
        list(read_lines(path))


def test_values_that_share_their_beginning_are_counted_in_full(folder):
    path = folder / "packed.parquet"
    table = pa.table({"question": ["a" * 2**20 + str(i) for i in range(20)]})
    encoding = {"question": "DELTA_BYTE_ARRAY"}
    pq.write_table(table, path, use_dictionary=False, column_encoding=encoding, compression="zstd")
    with pytest.raises(LimitError, match="LOOKBACK_MAX_PACKED_RATIO"):
        list(read_lines(path))


def test_nested_parquet_columns_are_read_however_they_are_stored(folder):
    """Lists some of which are stored as indices and some in full, in several groups of rows."""
    path = folder / "nested.parquet"
    rows = [
        {
            "question": f"What {i}?",
            "image": [{"bytes": bytes([i % 7] * 9), "path": f"{i}.png"}] * 2,
            "answers": [f"answer {i} {k}" * 9 for k in range(i % 5)],
            "more": [("key", "value")],
        }
        for i in range(3000)
    ]
    fields = {"question": pa.string(), "answers": pa.list_(pa.string())}
    picture = pa.struct({"bytes": pa.binary(), "path": pa.string()})
    fields |= {"image": pa.list_(picture), "more": pa.map_(pa.string(), pa.string())}
    table = pa.Table.from_pylist(rows, pa.schema(fields))
    small = {"row_group_size": 1700, "dictionary_pagesize_limit": 1000, "data_page_size": 1000}
    pq.write_table(table, path, **small)
    assert [entry for _, entry in read_lines(path)] == rows


def test_texts_of_a_line_are_of_limited_length(own, monkeypatch):
    monkeypatch.setenv("LOOKBACK_MAX_TEXT_CHARACTERS", "100")
    long = "a" * 101
    turn = {"role": "user", "content": long}
    mine = own(
        GOOD,
        GOOD | {"question": long},
        GOOD | {"answers": [long[:60], long[:60]]},
        {"messages": [turn]},
        {"image": ["cat.png", "cat.png"], "question": long},
    )
    assert [item.id for item in mine.items()] == ["1"]
    assert [line.split(":")[0] for line in mine.left_out()] == [f"line {i}" for i in (2, 3, 4, 5)]
    assert all("LOOKBACK_MAX_TEXT_CHARACTERS" in line for line in mine.left_out())


def test_a_missing_image_is_no_broken_line(own):
    mine = own({"image": "gone.png", "question": "What?"})
    with pytest.raises(FileNotFoundError, match=r"gone\.png"):
        _ = mine.items()[0].image


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{oops", "not JSON: "),
        ("[" * 100_000, "not JSON: "),
        ('["a"]', "not an object"),
        ({"image": "cat.png"}, "no question"),
        (GOOD | {"question": "  "}, "the question is '  '"),
        (GOOD | {"question": 4}, "the question is 4"),
        (GOOD | {"question": None}, "no question"),
        (GOOD | {"image": 4}, "the image is 4: give a path, a URL"),
        (GOOD | {"image": ""}, "the image is ''"),
        (GOOD | {"image": []}, "the list of images is empty"),
        (GOOD | {"image": ["cat.png", 3]}, "the image is 3"),
        (GOOD | {"answers": []}, "the answers are empty"),
        (GOOD | {"answers": ""}, "an answer is empty"),
        (GOOD | {"answers": ["a", " "]}, "an answer is empty"),
        (GOOD | {"answers": True}, "an answer is neither text nor number but True"),
        (GOOD | {"answers": {"a": 1}}, "an answer is neither text nor number but {'a': 1}"),
        (GOOD | {"answers": "a", "metric": "beauty"}, "no metric named 'beauty'; there are: exact"),
        (GOOD | {"metric": 4}, "the metric is no name but 4"),
        (GOOD | {"id": True}, "the id is neither a number nor a string"),
        (GOOD | {"id": ""}, "the id is empty"),
        (GOOD | {"id": "1"}, "duplicate id '1': line 1 has it"),
        ({"messages": "hm?"}, "messages must be a list of turns"),
        ({"messages": []}, "messages must end with a turn of the user's"),
        ({"messages": [{"role": "bot", "content": "a"}]}, "the role is 'bot'"),
        ({"messages": [{"role": "user", "content": " "}]}, "no question: the last turn"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image", "image": 3}]}]},
            "the image is 3",
        ),
        (GOOD | {"messages": [{"role": "user", "content": "a"}]}, "it has messages and image"),
        ('{"question": "half \\ud800"}', "question has half a character, '\\ud800'"),
        ('{"question": "?", "answers": ["a", "\\ud800"]}', "answers[1] has half a character"),
        ('{"question": "?", "image": "a\\u0000.png"}', "'a\\x00.png'"),
    ],
)
def test_a_broken_line_is_left_out_by_its_number(own, line, said):
    mine = own(GOOD, "", line, GOOD)
    assert [item.id for item in mine.items()] == ["1", "4"]
    (left,) = mine.left_out()
    assert left.startswith("line 3: ")
    assert said in left


def test_a_file_whose_name_is_not_utf_8_has_a_name_that_is():
    assert own_name("data/mine\udcff.jsonl") == "own:mine\ufffd"


def test_a_line_that_is_not_utf_8_is_left_out(own, folder):
    mine = own(GOOD)
    with open(folder / "mine.jsonl", "ab") as file:
        file.write(b'\n{"question": "\xff"}\n')
    (left,) = mine.left_out()
    assert left.startswith("line 2: not UTF-8")


def test_all_lines_broken_is_an_error_that_names_the_first(own):
    with pytest.raises(ValueError, match=r"mine\.jsonl' can be used: line 1: .*; line 2: .*; line"):
        own(*["{"] * 3).items()
    with pytest.raises(ValueError, match=r"; and 2 more$"):
        own(*["{"] * 5).items()
    with pytest.raises(ValueError, match=r"mine\.jsonl' has no items"):
        own("").items()


@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_csv(own, mark):
    mine = own(
        f"{mark}id,image,question,answers,metric,messages",
        'a,cat.png,"What, or\nwho?","[""a cat"", 3]",vqa,',
        ",dog.png,What?,[cat],,",
        'c,"[""cat.png"", ""dog.png""]",Which?,,,',
        'd,,,5,contains,"[{""role"": ""user"", ""content"": ""Hm?""}]"',
        ",,,,,",
        "e,cat.png,What?,a,,,more",
        "f,cat.png,What?,a,,{",
        "g,cat.png",
        name="mine.csv",
    )
    assert table(mine) == [
        ("a", "What, or\nwho?", {"answers": ["a cat", "3"], "metric": "vqa"}),
        ("3", "What?", {"answers": ["[cat]"], "metric": "exact"}),
        ("c", "Which?", {}),
        ("d", "Hm?", {"answers": ["5"], "metric": "contains"}),
    ]
    assert len(mine.items()[2].conversation.images) == 2
    first, second, third = mine.left_out()
    assert first == "line 7: 7 cells for 6 columns"
    assert second.startswith("line 8: the messages are not JSON")
    assert third == "line 9: no question"


def test_a_large_cell_of_a_csv(own):
    uri = "data:image/png;base64," + "A" * 300_000
    (item,) = own("image,question", f'"{uri}",What?', name="mine.csv").items()
    with pytest.raises(ValueError, match=r"300022 characters"):
        _ = item.image


def test_what_is_no_csv_is_said(own, folder):
    with pytest.raises(ValueError, match=r"mine\.csv' is no CSV"):
        own("question", '"never closed', name="mine.csv").items()
    (folder / "old.csv").write_bytes(b"question\ncaf\xe9?\n")
    with pytest.raises(ValueError, match=r"old\.csv' is not UTF-8"):
        get_benchmark("own", folder / "old.csv").items()


def test_parquet(folder):
    png = (folder / "cat.png").read_bytes()
    chat = [{"role": "user", "content": [{"type": "image", "image": "dog.png"}]}]
    chat[0]["content"].append({"type": "text", "text": "Hm?"})
    rows = [
        {"id": 1.0, "question": "a?", "image": {"bytes": png, "path": None}, "answers": ["x"]},
        {"id": None, "question": "b?", "image": {"bytes": None, "path": "dog.png"}},
        {"id": math.nan, "messages": chat},
        {"id": 9.0, "question": "c?", "answers": []},
    ]
    pq.write_table(pa.Table.from_pylist(rows, pa.schema(_columns())), folder / "mine.parquet")
    mine = get_benchmark("own", folder / "mine.parquet")
    assert [item.id for item in mine.items()] == ["1", "2", "3"]
    shown = [item.conversation.images[0].tobytes() for item in mine.items()]
    assert shown == [noise(seed).tobytes() for seed in (0, 1, 1)]
    assert mine.left_out() == ["line 4: the answers are empty: leave them out if there are none"]
    (folder / "no.parquet").write_text("hello")
    with pytest.raises(ValueError, match=r"no\.parquet' is no Parquet"):
        get_benchmark("own", folder / "no.parquet").items()


def _columns():
    part = pa.struct({"type": pa.string(), "text": pa.string(), "image": pa.string()})
    turn = pa.struct({"role": pa.string(), "content": pa.list_(part)})
    return {
        "id": pa.float64(),
        "question": pa.string(),
        "image": pa.struct({"bytes": pa.binary(), "path": pa.string()}),
        "answers": pa.list_(pa.string()),
        "messages": pa.list_(turn),
    }


def test_which_metric_counts(own):
    lines = [GOOD | {"answers": "cat"}, GOOD | {"answers": "cat", "metric": "vqa"}, GOOD]
    for given, expected in ((None, "exact"), ("contains", "contains")):
        mine = own(*lines, metric=given)
        assert [item.truth.get("metric") for item in mine.items()] == [expected, "vqa", None]
        said = [note for note in mine.notes if "'exact' compares them" in note]
        assert len(said) == (given is None)
    assert mine.score(mine.items()[0], "It is a cat.") == 1
    assert math.isnan(mine.score(mine.items()[2], "It is a cat."))
    with pytest.raises(ValueError, match="no metric named 'beauty'; there are: exact"):
        own(GOOD, metric="beauty")


def test_what_is_easily_overlooked_is_noted(own):
    mine = own({"question": "a?", "answer": "x", "img": "cat.png"}, GOOD | {"answers": "x"})
    mine.items()
    assert mine.notes == [
        "1 of 2 items have answers and name no metric: 'exact' compares them; --metric NAME sets "
        "another",
        "1 of 2 items have no answers: the quality of responses to them is not known",
        "1 of 2 items have no image: they are asked without one",
        "keys that mean nothing here: answer, img",
    ]


def test_its_name_is_of_the_file(own, folder):
    own(GOOD)
    assert get_benchmark("own:mine", folder / "mine.jsonl").name == "own:mine"
    with pytest.raises(ValueError, match=r"no benchmark 'own:mine' with the data .*: .*'own:your'"):
        get_benchmark("own:mine", folder / "your.jsonl")
    with pytest.raises(ValueError, match="no benchmark 'own:mine' without data"):
        get_benchmark("own:mine")
    with pytest.raises(ValueError, match="no benchmark named 'beauty'"):
        get_benchmark("beauty:mine")
    with pytest.raises(ValueError, match="no benchmark 'scenes-vqa:mine' without data"):
        get_benchmark("scenes-vqa:mine")


def test_its_fingerprint_is_of_the_content(own, folder, monkeypatch):
    mine = own(GOOD, GOOD | {"answers": "cat", "metric": "later"})
    assert isinstance(mine, Fingerprinted)
    digest = hashlib.sha256((folder / "mine.jsonl").read_bytes()).hexdigest()
    assert mine.fingerprint() == f"{digest} without 1 lines"
    monkeypatch.setattr(METRICS, "entries", METRICS.all() | {"later": METRICS.get("exact")})
    assert get_benchmark("own", folder / "mine.jsonl").fingerprint() == digest


def test_what_cannot_be_read_at_all(own, folder):
    for data, said in (
        (None, "no file is given: name one with --data FILE"),
        (folder, "is a folder"),
        (folder / "gone.jsonl", "does not exist"),
    ):
        with pytest.raises(MissingFile, match=said):
            get_benchmark("own", data).items()
    with pytest.raises(ValueError, match=r"mine\.txt' is none of \.jsonl, \.csv, \.parquet"):
        own(GOOD, name="mine.txt").items()
    with pytest.raises(ValueError, match="no split named 'test'; there is: all"):
        own(GOOD).items("test")
    with pytest.raises(ValueError, match="limit = -1"):
        own(GOOD).items(limit=-1)


def test_responses_are_evaluated(own, folder):
    lines = [GOOD | {"id": i, "answers": "cat"} for i in "abc"] + [GOOD | {"id": "d"}]
    said = {"a": "cat", "b": "a cat", "c": "dog", "d": "x"}
    responses = [{"id": i, "response": r} for i, r in said.items()]
    (folder / "r.jsonl").write_text("\n".join(map(json.dumps, responses)))
    found = evaluate(own(*lines, "{"), folder / "r.jsonl")
    assert (found.benchmark, found.primary, found.items) == ("own:mine", "quality", 4)
    assert found.metrics == {"quality": pytest.approx(200 / 3)}
    assert found.notes[0].startswith("1 items left out, the first: line 5: not JSON")
    lines[0]["metric"] = "contains"
    found = evaluate(own(*lines), folder / "r.jsonl")
    assert found.metrics == {
        "quality": pytest.approx(200 / 3),
        "quality_contains": 100,
        "quality_exact": 50,
    }
    with pytest.raises(ValueError, match="none of them has answers"):
        evaluate(own(lines[3]), folder / "r.jsonl", strict=False)


def test_it_is_listed_with_and_without_a_file(own, folder):
    own(GOOD)
    for data in (None, folder, folder / "mine.jsonl"):
        listed = list_benchmarks(data)[-1]
        assert (listed.name, listed.primary) == ("own", "quality")
        assert "--data FILE: .jsonl, .csv or .parquet" in listed.source


def test_a_damaged_parquet_file_is_named(folder):
    """Whatever byte is wrong: it is read, or it is a ValueError that names the file."""
    path, draw, named = folder / "damaged.parquet", random.Random(3), 0
    pq.write_table(pa.table({"question": ["What?", "Why?"]}), path)
    good = path.read_bytes()
    for _ in range(150):
        data = bytearray(good)
        for _ in range(3):
            data[draw.randrange(len(data))] = draw.randrange(256)
        path.write_bytes(data)
        try:
            list(read_lines(path))
        except ValueError as error:
            named += str(path) in str(error)
        else:
            named += 1
    assert named == 150


def test_keys_that_cannot_be_seen_are_quoted(tmp_path):
    path = tmp_path / "mine.jsonl"
    path.write_text(
        json.dumps({"question": "Is it?", "answers": "yes", "": 1, "a\nb": 2, "my key": 3})
    )
    own = get_benchmark("own", path)
    own.items()
    assert "keys that mean nothing here: '', 'a\\nb', my key" in own.notes
