"""Data files that are good JSON of something else, damaged or packed oddly: one line names them."""

import gzip
import io
import json
import random
import re
import zipfile

import pytest

from lookback.benchmarks import get_benchmark
from lookback.benchmarks.files import check_lists, check_rows, check_words, get_rows, read_json

PEOPLE = [{"answer": "yes"}] * 10
ROW = dict.fromkeys(("category", "subcategory", "visual_input", "set_id", "figure_id"), "1")
ROW |= {"question_id": "0", "question": "Is it?", "gt_answer": "1", "filename": None}
FILES = {
    "vqav2": {
        "questions.json": {
            "questions": [{"question_id": 1, "image_id": 1, "question": "Is it?"}],
        },
        "annotations.json": {"annotations": [{"question_id": 1, "answers": PEOPLE}]},
    },
    "chair": {
        "instances_val2014.json": {
            "images": [{"id": 1}],
            "categories": [{"id": 18, "name": "dog"}],
            "annotations": [{"image_id": 1, "category_id": 18}],
        },
        "captions_val2014.json": {"annotations": [{"image_id": 1, "caption": "A dog."}]},
    },
    "chair, ready": {"ground_truth_objects.json": {"1": ["dog"]}},
    "amber": {
        "query_generative.json": [{"id": 1, "image": "1.jpg", "query": "Describe it."}],
        "annotations.json": [{"id": 1, "type": "generative", "truth": ["dog"], "hallu": ["cat"]}],
        "relation.json": {"dog": ["puppy"], "cat": []},
    },
    "hallusionbench": {
        "HallusionBench.json": [ROW | {"category": "VD", "gt_answer_details": "It is."}],
    },
}
TEXTS = {"amber": {"safe_words.txt": "picture"}}


@pytest.fixture(autouse=True)
def no_environment(monkeypatch):
    for name in ("OPENAI_BASE_URL", "OPENAI_API_KEY", "LOOKBACK_JUDGE_MODEL", "LOOKBACK_DATA"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def evaluate(command, tmp_path):
    """`lookback evaluate` of one response, on a benchmark's files with one of them changed."""

    def evaluate(kind, changed=None, data=b""):
        folder = tmp_path / "data"
        folder.mkdir()
        for name, content in FILES[kind].items():
            (folder / name).write_text(json.dumps(content))
        for name, text in TEXTS.get(kind, {}).items():
            (folder / name).write_text(text)
        if changed:
            (folder / changed).write_bytes(data)
        responses = tmp_path / "responses.jsonl"
        name = "0" if kind == "hallusionbench" else "1"
        responses.write_text(json.dumps({"id": name, "response": "Yes, a dog."}))
        name = kind.partition(",")[0]
        arguments = ("evaluate", name, "--data", folder, "--responses", responses, "--json")
        return command(*arguments)

    return evaluate


@pytest.mark.parametrize("kind", FILES)
def test_the_files_that_are_changed_below_are_good(evaluate, kind):
    status, out, err = evaluate(kind)
    assert (status, err) == (0, "")
    data = json.loads(out)
    assert data["items"] == 1
    assert next(iter(data["metrics"].values())) == 100


def replaced(content, old, new):
    """The content with one of its values, found by its place in the text, replaced."""
    text = json.dumps(content)
    assert old in text
    return text.replace(old, new, 1).encode()


SHAPES = (b"[]", b"{}", b"null", b"[{}]", b"[null]", b"[[]]", b'"x"', b"1", b'{"1": {}}')
DEEP = b"[" * 100_000
BROKEN = [
    (kind, name, data)
    for kind, files in FILES.items()
    for name in files
    for data in (*SHAPES, DEEP, b"", b"\xff\xfe", b'{"a":')
]


@pytest.mark.parametrize(("kind", "name", "data"), BROKEN, ids=range(len(BROKEN)))
def test_a_file_of_another_shape_is_one_line(evaluate, kind, name, data):
    status, out, err = evaluate(kind, name, data)
    assert (status, out, err.count("\n")) == (1, "", 1)
    assert "this is a bug" not in err
    assert name in err or "have no items of the split" in err


WRONG = [
    ("vqav2", "questions.json", '"image_id": 1', '"image_id": null', "entry 0: its 'image_id' is"),
    ("vqav2", "questions.json", '"question": "Is it?"', '"q": 1', "entry 0: no 'question'"),
    ("vqav2", "questions.json", '"question_id": 1', '"question_id": [1]', "'question_id' is [1]"),
    ("vqav2", "annotations.json", '"answer": "yes"', '"answer": 1', "question 1, entry 0"),
    ("vqav2", "annotations.json", json.dumps(PEOPLE), "[]", "question 1: there are none"),
    ("vqav2", "annotations.json", json.dumps(PEOPLE), '"yes"', "'answers' is 'yes', not a list"),
    ("chair", "instances_val2014.json", '"id": 1}', '"id": 2}', "image 1 and category 18"),
    ("chair", "instances_val2014.json", '"id": 18', '"id": 19', "image 1 and category 18"),
    ("chair", "instances_val2014.json", '"name": "dog"', '"name": {}', "'name' is {}, not text"),
    ("chair", "captions_val2014.json", '"A dog."', "null", "'caption' is None, not text"),
    ("chair, ready", "ground_truth_objects.json", '["dog"]', '"dog"', "a list of texts is needed"),
    ("chair, ready", "ground_truth_objects.json", '"dog"', "[1]", "a list of texts is needed"),
    ("amber", "annotations.json", '["dog"]', "null", "id 1, 'truth': a list of texts is needed"),
    ("amber", "annotations.json", '["cat"]', "{}", "id 1, 'hallu': a list of texts is needed"),
    ("amber", "annotations.json", '"id": 1', '"id": []', "entry 0: its 'id' is []"),
    ("amber", "query_generative.json", '"1.jpg"', "7", "entry 0: its 'image' is 7, not text"),
    ("amber", "relation.json", '["puppy"]', '"puppy"', "'dog': a list of texts is needed"),
    ("hallusionbench", "HallusionBench.json", '"Is it?"', "0", "its 'question' is 0, not text"),
    ("hallusionbench", "HallusionBench.json", "null", "5", "its 'filename' is 5, not text or"),
]


@pytest.mark.parametrize(("kind", "name", "old", "new", "message"), WRONG)
def test_a_wrong_value_is_named_with_its_entry(evaluate, kind, name, old, new, message):
    status, out, err = evaluate(kind, name, replaced(FILES[kind][name], old, new))
    assert (status, out, err.count("\n")) == (1, "", 1)
    assert name in err
    assert message in err


@pytest.mark.parametrize(
    ("kind", "name", "data", "message"),
    [
        ("chair", "synonyms.txt", b"", "has no words"),
        ("chair", "synonyms.txt", b"\n \n", "has no words"),
        ("chair", "synonyms.txt", b"dog, \xff", "is not UTF-8"),
        ("amber", "relation.json", b"{}", "is empty: nothing can be scored with it"),
        ("amber", "relation.json", b'{"zebra": []}', "every response would score 0"),
        ("amber", "safe_words.txt", b"\xff", "is not UTF-8"),
    ],
)
def test_words_that_would_make_every_number_zero_are_an_error(evaluate, kind, name, data, message):
    status, out, err = evaluate(kind, name, data)
    assert (status, out, err.count("\n")) == (1, "", 1)
    assert name in err
    assert message in err


def zipped(content=b"[1]", method=zipfile.ZIP_DEFLATED, name="a.json"):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        archive.writestr(name, content)
    return file.getvalue()


def encrypted():
    """A zip whose file asks for a password: bit 0 of its flags, in both of its heads."""
    data = bytearray(zipped())
    for head, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        data[data.index(head) + offset] |= 1
    return bytes(data)


def packed_as(method):
    """A zip whose file is said to be packed in another way."""
    data = bytearray(zipped())
    for head, offset in ((b"PK\x03\x04", 8), (b"PK\x01\x02", 10)):
        data[data.index(head) + offset] = method
    return bytes(data)


LONG = json.dumps([str(n) for n in range(2000)]).encode()
ARCHIVES = {
    "empty.zip": b"",
    "text.zip": b"hello",
    "half.zip": zipped(LONG)[:300],
    "encrypted.zip": encrypted(),
    "unsupported.zip": packed_as(97),
    "deflate64.zip": packed_as(9),
    "lzma.zip": packed_as(14),
    "bzip2.zip": packed_as(12),
    "none.zip": zipped(name="a.txt"),
    "deep.zip": zipped(DEEP),
    "empty.gz": b"",
    "text.gz": b"hello",
    "half.gz": gzip.compress(LONG)[:200],
    "changed.gz": gzip.compress(LONG)[:60] + b"\xff" * 100,
    "deep.gz": gzip.compress(DEEP),
    "plain.json": b"\x80",
}


@pytest.mark.parametrize("name", ARCHIVES)
def test_a_damaged_archive_is_an_error_that_names_it(tmp_path, name):
    path = tmp_path / name
    path.write_bytes(ARCHIVES[name])
    with pytest.raises(ValueError, match=re.escape(f"cannot read {str(path)!r} as JSON: ")):
        read_json(path)


@pytest.mark.parametrize("kind", ["zip", "gz"])
def test_any_byte_of_an_archive_may_be_wrong(tmp_path, kind):
    """It is read as it was, or it is a ValueError; nothing else comes out."""
    good = zipped(LONG) if kind == "zip" else gzip.compress(LONG, mtime=0)
    draw, path, refused = random.Random(5), tmp_path / f"a.{kind}", 0
    for _ in range(400):
        data = bytearray(good)
        for _ in range(draw.randint(1, 3)):
            data[draw.randrange(len(data))] = draw.randrange(256)
        path.write_bytes(data)
        try:
            read_json(path)
        except ValueError:
            refused += 1
    assert refused > 200


def test_shapes_that_fit_pass_through():
    rows = [{"a": 1, "b": "x", "c": None}]
    assert check_rows(rows, {"a": (int, str), "b": str}, "here") is rows
    assert check_words([], "here") == []
    assert check_lists({"a": ["b"]}, "here") == {"a": ["b"]}
    assert get_rows({"a": rows}, "path", "a", {"b": str}) is rows


def test_a_truth_is_no_number():
    with pytest.raises(ValueError, match="here, entry 1: its 'a' is True, not a whole number"):
        check_rows([{"a": 1}, {"a": True}], {"a": int}, "here")


def test_images_without_answers_or_objects_are_still_items(tmp_path):
    (tmp_path / "ground_truth_objects.json").write_text('{"1": [], "2": ["dog"]}')
    assert len(get_benchmark("chair", tmp_path).items()) == 2
