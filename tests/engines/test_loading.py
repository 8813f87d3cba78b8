"""`lookback.load`: names that are not there, settings that pass through, devices, threads."""

import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from engines.reference import noise
from huggingface_hub import constants as hub
from huggingface_hub.errors import HfHubHTTPError
from transformers import (
    AutoModelForImageTextToText,
    AutoProcessor,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
)
from zoo import build

import lookback
from lookback.embedded import LVLM
from lookback.engines.common.model_files import LOADING, hub_options
from lookback.engines.transformers import loading
from lookback.engines.transformers.loading import load_embedded
from lookback.engines.transformers.support import end_token_ids


@pytest.fixture
def asked(monkeypatch):
    """What from_pretrained is given; the embedded model comes back, whatever is asked for."""
    calls, load = [], AutoModelForImageTextToText.from_pretrained

    def from_pretrained(name, **options):
        calls.append({"name": name} | options)
        dtype = options["dtype"]
        return load(LVLM, dtype=torch.float32 if dtype == "auto" else dtype)

    monkeypatch.setattr(AutoModelForImageTextToText, "from_pretrained", from_pretrained)
    return calls


@pytest.mark.parametrize("name", ["./nowhere", "nowhere/", "/no/such/folder", "~/no/such", "a/b/c"])
def test_a_missing_folder_says_so(name):
    with pytest.raises(FileNotFoundError, match="there is no folder") as error:
        lookback.load(name)
    assert Path(name).name in str(error.value)
    assert "\n" not in str(error.value)


def test_a_missing_path_is_no_hub_id():
    with pytest.raises(FileNotFoundError, match="there is no folder owner/name"):
        lookback.load(Path("owner/name"))


def test_a_file_is_no_folder(tmp_path):
    (tmp_path / "model.safetensors").touch()
    with pytest.raises(NotADirectoryError, match="is a file"):
        lookback.load(str(tmp_path / "model.safetensors"))


@pytest.mark.parametrize("name", ["nobody/nothing", "nothing"])
def test_a_hub_id_that_is_not_there_names_both(name):
    with pytest.raises(OSError, match=f"no folder {Path(name).absolute()}") as error:
        lookback.load(name)
    assert f"hf download {name}" in str(error.value)
    assert "\n" not in str(error.value)


@pytest.fixture
def unreachable(monkeypatch, tmp_path):
    """A hub that cannot be connected to, an empty cache; and where connections went.

    Those of this thread: libraries keep others from earlier tests, which ask the hub, too.
    """
    connected, thread = [], threading.get_ident()

    def refuse(address, *args, **options):
        if threading.get_ident() == thread:
            connected.append(address)
        raise ConnectionRefusedError(111, "Connection refused")

    monkeypatch.setattr("socket.create_connection", refuse)
    monkeypatch.setattr("time.sleep", lambda seconds: None)  # the hub library's, between attempts
    monkeypatch.setattr(hub, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(hub, "ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(hub, "HF_HUB_CACHE", str(tmp_path / "cache"))
    return connected


def test_a_hub_that_cannot_be_reached_is_asked_once(unreachable):
    with pytest.raises(OSError, match="Connection refused") as error:
        lookback.load("nobody/nothing")
    assert "hf download nobody/nothing" in str(error.value)
    assert len(unreachable) == 1
    with pytest.raises(OSError, match="Connection refused"):
        lookback.load(build("llava").model, "nobody/nothing")
    assert len(unreachable) == 2


def test_what_is_in_the_cache_needs_no_hub(unreachable, tmp_path):
    """It is asked once for the model and once for the processor, not for every file."""
    commit = "0" * 40
    folder = tmp_path / "cache" / "models--somebody--something"
    shutil.copytree(LVLM, folder / "snapshots" / commit)
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text(commit)
    assert lookback.load("somebody/something").identity().revision == commit
    assert len(unreachable) == 2


def test_only_the_revision_that_is_asked_for_counts_as_cached(unreachable, tmp_path):
    commit, name = "0" * 40, "somebody/something"
    folder = tmp_path / "cache" / "models--somebody--something"
    (folder / "snapshots" / commit).mkdir(parents=True)
    (folder / "snapshots" / commit / "config.json").write_text("{}")
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text(commit)
    assert hub_options(name) == {"local_files_only": True}
    assert hub_options(name, commit) == {"local_files_only": True}
    with pytest.raises(OSError, match="no connection"):
        hub_options(name, "v1")


def test_weights_of_another_model_are_not_loaded_into_the_embedded_one(monkeypatch):
    weights = loading.load_file(LVLM / "model.safetensors")
    (name, *_) = (one for one in weights if "vision" in one)
    less = {key: value for key, value in weights.items() if key != name}
    for others in (less, weights | {"more": weights[name]}):
        monkeypatch.setattr(loading, "load_file", lambda path, others=others: others)
        with pytest.raises(ValueError, match="another model's"):
            load_embedded()


def test_a_hub_that_answers_is_asked_as_ever(unreachable, monkeypatch, asked):
    """Also if it says no: a model that is private or not there is from_pretrained's to explain."""
    answers = [None, HfHubHTTPError("401", response=SimpleNamespace(headers={}, request=None))]

    def metadata(url, **options):
        answer = answers.pop(0)
        if answer is not None:
            raise answer

    monkeypatch.setattr("lookback.engines.common.model_files.get_hf_file_metadata", metadata)
    for _ in range(2):
        lookback.load("somebody/something", processor=LVLM)
    assert ["local_files_only" in call for call in asked] == [False, False]


def test_a_model_of_text_alone_is_called_so(tmp_path):
    size = {"hidden_size": 8, "intermediate_size": 8, "vocab_size": 9}
    config = LlamaConfig(**size, num_hidden_layers=1, num_attention_heads=1)
    LlamaForCausalLM(config).save_pretrained(tmp_path)
    with pytest.raises(lookback.UnsupportedModelError, match="is a 'llama' model") as error:
        lookback.load(tmp_path)
    assert str(tmp_path) in str(error.value)
    assert len(str(error.value)) < 400


@pytest.mark.parametrize(
    ("name", "of"),
    [
        ("llava", "qwen2_5_vl"),
        ("llava", "gemma3"),
        ("qwen2_5_vl", "mistral3"),  # with the same image token, from here on
        ("internvl", "qwen2_5_vl"),
        ("paligemma", "gemma3"),
    ],
)
def test_the_processor_of_another_model_is_refused_at_once(name, of):
    model, processor = build(name).model, build(of).processor
    with pytest.raises(lookback.UnsupportedModelError) as error:
        lookback.load(model, processor)
    assert type(processor).__name__ in str(error.value)
    assert type(model).__name__ in str(error.value)


def test_the_processor_of_another_model_that_fits_is_taken():
    lb = lookback.load(build("qwen2_5_vl").model, build("qwen2_vl").processor)
    assert lb.sample(noise(), "what?", 1, max_new_tokens=1)


def test_the_model_is_not_run_for_its_own_processor():
    zoo, runs = build("llava"), []
    hook = zoo.model.register_forward_pre_hook(lambda *run: runs.append(run))
    try:
        lookback.load(zoo.model, zoo.processor)
    finally:
        hook.remove()
    assert runs == []


def test_a_processor_with_tokens_that_the_model_does_not_know_is_refused(monkeypatch):
    zoo = build("llava")
    monkeypatch.setattr(zoo.model, "get_input_embeddings", lambda: torch.nn.Embedding(5, 1))
    with pytest.raises(lookback.UnsupportedModelError, match="the model knows 5"):
        lookback.load(zoo.model, zoo.processor)


@pytest.mark.parametrize("part", ["tokenizer", "image_processor"])
def test_a_part_of_a_processor_is_none(part):
    zoo = build("llava")
    with pytest.raises(TypeError, match=type(getattr(zoo.processor, part)).__name__):
        lookback.load(zoo.model, getattr(zoo.processor, part))


def test_a_model_without_weights_is_refused_and_one_put_aside_is_not():
    zoo = build("llava")
    with torch.device("meta"):
        model = type(zoo.model)(zoo.model.config)
    with pytest.raises(lookback.UnsupportedModelError, match="meta"):
        lookback.load(model, zoo.processor)
    for module in model.modules():
        module._hf_hook = None  # as accelerate marks what it fetches when it is needed
    assert lookback.load(model, zoo.processor).model is model


@pytest.mark.parametrize("model", [5, b"model"])
def test_what_is_no_model_is_named(model):
    with pytest.raises(TypeError, match=f"got {type(model).__name__}"):
        lookback.load(model)


def test_whether_code_is_trusted_is_true_or_false():
    with pytest.raises(ValueError, match="trust_remote_code = 'no'"):
        lookback.load(trust_remote_code="no")


def test_the_processors_name_too():
    with pytest.raises(FileNotFoundError, match=r"there is no folder \./nowhere"):
        lookback.load(build("llava").model, "./nowhere")


def test_the_shell_says_it_in_one_line(command, tmp_path):
    noise().save(tmp_path / "photo.png")
    status, _, err = command("ask", tmp_path / "photo.png", "what?", "--model", "./nowhere")
    assert status == 1
    assert "lookback: there is no folder ./nowhere" in err


def test_a_home_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "mine").symlink_to(LVLM)
    assert lookback.load("~/mine").model.device.type == "cpu"


def test_settings_pass_through(asked):
    quantization = {"quant_method": "someones"}
    lookback.load(
        str(LVLM),
        device_map={"": "cpu"},
        quantization_config=quantization,
        revision="abc",
        trust_remote_code=True,
        attn="eager",
    )
    (call,) = asked
    assert call == {
        "name": str(LVLM),
        "dtype": torch.float32,
        "device_map": {"": "cpu"},
        "quantization_config": quantization,
        "revision": "abc",
        "trust_remote_code": True,
        "attn_implementation": "eager",
    }


def test_quantised_weights_are_made_on_their_device(asked, monkeypatch):
    """Most cannot be moved afterwards, and are not."""
    monkeypatch.setattr(torch.nn.Module, "to", lambda *args: pytest.fail("moved"))
    lookback.load(str(LVLM), device="cuda:1", quantization_config={"quant_method": "someones"})
    assert asked[0]["device_map"] == "cuda:1"
    assert asked[0]["dtype"] == "auto"


@pytest.mark.parametrize("device", ["cpu", "cpu:0", torch.device("cpu", 0)])
def test_a_cpu_by_any_name(asked, device):
    lb = lookback.load(str(LVLM), device=device)
    assert asked[0]["dtype"] is torch.float32
    assert lb.identity().device == "cpu"
    assert "device_map" not in asked[0]


@pytest.mark.parametrize(("device_map", "dtype"), [("cpu:0", torch.float32), ("cuda", "auto")])
def test_a_device_map_that_is_a_device(asked, device_map, dtype):
    lookback.load(str(LVLM), device_map=device_map)
    assert asked[0]["dtype"] == dtype
    assert asked[0]["device_map"] == device_map


def test_what_does_not_fit_is_refused():
    zoo = build("llava")
    with pytest.raises(ValueError, match="give one of them"):
        lookback.load(device="cpu", device_map="auto")
    with pytest.raises(ValueError, match="for a model given by name"):
        lookback.load(zoo.model, zoo.processor, device_map="auto")
    with pytest.raises(ValueError, match="device = 'gpu'"):
        lookback.load(device="gpu")
    with pytest.raises(ValueError, match="dtype = 'float33'"):
        lookback.load(dtype="float33")
    with pytest.raises(ValueError, match="dtype = 'nn'"):
        lookback.load(zoo.model, zoo.processor, dtype="nn")
    with pytest.raises(TypeError, match="has no setting 'devcie'"):
        lookback.load(devcie="cpu")


def test_a_ready_model_is_made_ready(monkeypatch):
    """Out of training mode, and on the device that is asked for."""
    zoo, moved = build("llava"), []
    monkeypatch.setattr(
        "lookback.engines.transformers.move", lambda model, device: moved.append(device) or model
    )
    zoo.model.train()
    try:
        assert not lookback.load(zoo.model, zoo.processor, device="cuda:1").model.training
    finally:
        zoo.model.eval()
    assert moved == [torch.device("cuda:1")]
    lookback.load(zoo.model, zoo.processor)
    assert len(moved) == 1


def test_the_processor_is_of_the_same_revision_and_loads_alone(monkeypatch):
    asked, free, load = [], [], AutoProcessor.from_pretrained

    def from_pretrained(name, **options):
        asked.append(options)
        other = threading.Thread(target=lambda: free.append(LOADING.acquire(blocking=False)))
        other.start()
        other.join()
        return load(name)

    monkeypatch.setattr(AutoProcessor, "from_pretrained", from_pretrained)
    lookback.load(str(LVLM), revision="abc", trust_remote_code=True)
    assert asked == [{"revision": "abc", "trust_remote_code": True}]
    assert free == [False]


def test_the_commit_that_a_revision_was_is_told(asked, monkeypatch):
    given = []

    def hub_commit(name, revision):
        given.append((name, revision))
        return "0123abc"

    monkeypatch.setattr("lookback.engines.transformers.hub_commit", hub_commit)
    assert lookback.load(str(LVLM), revision="main").identity().revision == "0123abc"
    assert given == [(str(LVLM), "main")]


def test_a_folder_without_weights_is_not_called_missing(tmp_path):
    (tmp_path / "config.json").write_bytes((LVLM / "config.json").read_bytes())
    with pytest.raises(OSError, match="safetensors") as error:
        lookback.load(tmp_path)
    assert "there is no folder" not in str(error.value)


@pytest.mark.parametrize("device_map", ["auto", "balanced", "sequential", {"": "cpu"}])
def test_a_device_map_that_is_no_device(asked, device_map):
    lookback.load(str(LVLM), device_map=device_map)
    assert asked[0]["device_map"] == device_map
    assert asked[0]["dtype"] is torch.float32  # there is no GPU here


def test_quantised_weights_stay_where_they_were_made(asked, monkeypatch):
    monkeypatch.setattr(PreTrainedModel, "is_quantized", True, raising=False)
    monkeypatch.setattr(torch.nn.Module, "to", lambda *args: pytest.fail("moved"))
    lookback.load(str(LVLM), quantization_config={"quant_method": "someones"})
    assert "device_map" not in asked[0]  # a CPU is where they are made anyway


def test_dtypes_by_name():
    for name in ("bfloat16", "torch.bfloat16"):
        assert lookback.load(dtype=name).model.dtype is torch.bfloat16
    zoo = build("llava")
    assert lookback.load(zoo.model, zoo.processor, dtype="auto").model.dtype is torch.float32


OPTIONS = {
    "--dtype": ("dtype", "bfloat16"),
    "--revision": ("revision", "abc"),
    "--device-map": ("device_map", "auto"),
    "--trust-remote-code": ("trust_remote_code", None),
}
COMMANDS = {
    "ask": ["ask", "photo.png", "what?", "-n", "2", "--max-new-tokens", "2"],
    "score": ["score", "photo.png", "what?", "a cup"],
    "run": ["run", "--benchmark", "scenes-caption", "--limit", "1", "-n", "2", "--dry-run"],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_the_shells_options_are_alike(name, command, monkeypatch, tmp_path):
    """What the shell is told arrives at load, and without it nothing does."""
    loaded = []

    def note(model=None, processor=None, **settings):
        loaded.append(settings)
        raise ValueError("noted")

    noise().save(tmp_path / "photo.png")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("lookback.engines.load", note)
    command(*COMMANDS[name])
    given = [part for option, (_, value) in OPTIONS.items() for part in (option, value) if part]
    command(*COMMANDS[name], *given)
    command(*COMMANDS[name], "--device-map", '{"": 0}')
    plain, options, parts = loaded
    assert not {key for key, _ in OPTIONS.values()} & plain.keys()
    assert {key: options[key] for key, _ in OPTIONS.values()} == {
        key: value or True for key, value in OPTIONS.values()
    }
    assert parts["device_map"] == {"": 0}
    status, _, err = command(*COMMANDS[name], "--device-map", "{0}")
    assert status == 1
    assert "--device-map {0}: not JSON" in err


def test_several_threads_at_once():
    """In a process of its own: what goes wrong there spoils later loads too."""
    code = """
from concurrent.futures import ThreadPoolExecutor
import lookback
def work(i):
    lb = lookback.load(quiet=True)
    return {str(p.device) for p in lb.model.parameters()} | {str(lb.model.dtype)}
with ThreadPoolExecutor(6) as pool:
    found = list(pool.map(work, range(12)))
print(*sorted(set().union(*found, work(0))))
"""
    root = Path(__file__).parents[2]
    env = os.environ | {"PYTHONPATH": str(root)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.split() == ["cpu", "torch.float32"]


@pytest.mark.parametrize("device", ["mps", "meta", "xla", "vulkan", "cuda:99", "mps:7"])
def test_a_device_that_is_not_here_is_said_before_anything_is_loaded(asked, device):
    with pytest.raises(ValueError, match=rf"device = '{device}' cannot be used here \(.+\)"):
        lookback.load(device=device)
    assert asked == []


@pytest.mark.parametrize("device", ["cuda:99", "meta"])
def test_a_ready_model_is_not_moved_to_a_device_that_is_not_here(device):
    zoo = build("llava")
    with pytest.raises(ValueError, match=f"device = '{device}' cannot be used here"):
        lookback.load(zoo.model, zoo.processor, device=device)


@pytest.mark.parametrize("dtype", ["int8", "bool", "complex64", "float8_e4m3fn", torch.int64])
def test_weights_are_numbers_that_can_be_computed_with(dtype):
    with pytest.raises(ValueError, match=r"dtype = .*: write float32, bfloat16, float16 or auto"):
        lookback.load(dtype=dtype)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A model on disk."""
    folder = tmp_path_factory.mktemp("saved")
    zoo = build("llava")
    zoo.model.save_pretrained(folder)
    zoo.processor.save_pretrained(folder)
    noise().save(folder / "picture.png")
    return folder


@pytest.fixture
def damage(saved, tmp_path):
    """A function that gives a copy of the model with one file changed."""

    def damage(name, data):
        folder = tmp_path / "damaged"
        shutil.copytree(saved, folder)
        path = folder / name
        path.write_bytes(data(path.read_bytes()) if callable(data) else data)
        return folder

    return damage


DAMAGE = {
    "half the weights": ("model.safetensors", lambda data: data[: len(data) // 2]),
    "no weights": ("model.safetensors", b""),
    "other bytes as weights": ("model.safetensors", b"\xff" * 100),
    "a tokenizer that is null": ("tokenizer.json", b"null"),
    "an empty tokenizer": ("tokenizer.json", b"{}"),
    "half a tokenizer": ("tokenizer.json", b'{"version":'),
    "a list as the tokenizer's settings": ("tokenizer_config.json", b"[]"),
    "a text as the processor's": ("processor_config.json", b'"x"'),
    "a config that is null": ("config.json", b"null"),
    "a deep config": ("config.json", b"[" * 100_000),
    "a list as generation's": ("generation_config.json", b"[]"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_model_is_one_line_that_names_it(command, damage, name):
    folder = damage(*DAMAGE[name])
    status, out, err = command("ask", folder / "picture.png", "what?", "--model", folder)
    assert (status, out) == (1, "")
    assert err.startswith(f"lookback: cannot load {str(folder)!r}: ")
    assert err.endswith("; are all its files there, and whole?\n")
    assert err.count("\n") == 1


TEMPLATES = {
    "{% if %}": "refuses the conversation: Expected an expression",
    "{{ nope.x }}": "refuses the conversation: 'nope' is undefined",
    "{{ raise_exception('no images') }}": "refuses the conversation: no images",
    "{{ 1 / 0 }}": "is broken: ZeroDivisionError: division by zero",
    "{{ messages + 1 }}": "is broken: TypeError: ",
    "{{ messages[0]['content'] + 'x' }}": "is broken: TypeError: ",
}


@pytest.mark.parametrize("template", TEMPLATES)
def test_a_broken_chat_template_is_one_line(command, damage, template):
    folder = damage("chat_template.jinja", template.encode())
    status, out, err = command("ask", folder / "picture.png", "what?", "--model", folder)
    assert (status, out) == (1, "")
    assert err.startswith(f"lookback: this model's chat template {TEMPLATES[template]}")
    assert err.count("\n") == 1


def test_a_folder_without_a_processor_for_text_is_refused(monkeypatch):
    monkeypatch.setattr(AutoProcessor, "from_pretrained", lambda *args, **options: object())
    with pytest.raises(ValueError, match="has a object and no tokenizer in it"):
        lookback.load()


@pytest.mark.parametrize(
    ("given", "ids"), [(3, [3]), ([3, 5], [3, 5]), (torch.tensor([[7]]), [7]), (-1, [-1]), ([], [])]
)
def test_the_tokens_that_end_a_turn(monkeypatch, given, ids):
    model = build("llava").model
    monkeypatch.setattr(model.generation_config, "eos_token_id", given)
    assert end_token_ids(model) == ids


@pytest.mark.parametrize("given", ["3", {}, [[1], 2], 1.5, [None], 10**30, True])
def test_tokens_that_cannot_end_a_turn(monkeypatch, given):
    model = build("llava").model
    monkeypatch.setattr(model.generation_config, "eos_token_id", given)
    with pytest.raises(ValueError, match=r"eos_token_id is .*a whole number or a list"):
        end_token_ids(model)
