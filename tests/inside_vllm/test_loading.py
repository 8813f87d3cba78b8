"""What is refused before or while a model is loaded inside vLLM, and runs made with it."""

import multiprocessing

import numpy as np
import pytest
import vllm
from documents import ROOT, blocks, read
from engines.reference import noise

import lookback
from lookback.engines.vllm import compat
from lookback.registry import SettingError
from lookback.runs import open_run
from lookback.runs.plan import Plan
from lookback.runs.start import start


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"tensor_paralel": 2}, "'tensor_paralel': vLLM does not know it"),
        ({"kv_cache_dtype": "fp8"}, "kv_cache_dtype = 'fp8': the indicator needs"),
        ({"speculative_config": {"method": "ngram"}}, "speculative_config"),
        ({"worker_extension_cls": "x.Y"}, "LookBack's tap is one"),
    ],
)
def test_settings_that_do_not_go_together(settings, message):
    with pytest.raises(SettingError, match=message):
        lookback.load(engine="vllm", **settings)


def test_a_ready_model_is_for_the_other_engine(embedded):
    with pytest.raises(TypeError, match="engine='transformers'"):
        lookback.load(embedded.model, embedded.processor, engine="vllm")


def test_another_release_is_refused(monkeypatch):
    monkeypatch.setattr(vllm, "__version__", "0.33.1")
    with pytest.raises(ImportError, match=r"vLLM 0\.33\.1: the tap was written for 0\.32"):
        lookback.load(engine="vllm")
    assert compat.SUPPORTED == ("0.32",)


def test_a_worker_of_this_machine_cannot_start_it(monkeypatch):
    monkeypatch.setitem(multiprocessing.current_process()._config, "daemon", True)
    with pytest.raises(RuntimeError, match="--workers 1"):
        lookback.load(engine="vllm")


def test_wrong_numbers_are_refused(inside, monkeypatch):
    """A tap that reads something else is found out by the comparison at loading."""
    from lookback.engines.vllm.client import scoring

    llm = inside.client.llm
    real = llm.collective_rpc

    async def off(method, **settings):
        found = await real(method, **settings)
        if method == "lookback_watch" and found[0] is not None:
            return [[(layer, tap + 1e-3, plain) for layer, tap, plain in one] for one in found]
        return found

    inside.client.run(scoring.refuse_wrong_numbers(inside))
    monkeypatch.setattr(llm, "collective_rpc", off)
    with pytest.raises(lookback.UnsupportedModelError, match="no numbers are better than wrong"):
        inside.client.run(scoring.refuse_wrong_numbers(inside))


def test_a_run_is_what_it_is_with_transformers(inside, embedded, tmp_path, monkeypatch):
    plan = {"benchmark": "scenes-caption", "limit": 23, "n": 4, "max_new_tokens": 40}
    runs = []
    for engine in (inside, embedded):
        monkeypatch.setattr(Plan, "load_engine", lambda plan, engine=engine: engine)
        folder = tmp_path / type(engine).__name__
        summary = start(Plan(**plan, engine=engine.identity().engine), folder)
        assert (summary.items, summary.failed) == (23, [])
        runs.append(open_run(folder))
    ours, plain = runs
    assert ours.settings["engine"] == "vllm"
    assert ours.texts == plain.texts
    np.testing.assert_allclose(ours.quality(), plain.quality())
    for name in ("log_prob", "visual_lookback"):
        np.testing.assert_allclose(ours.signal(name), plain.signal(name), atol=1e-4)


def test_the_page(inside, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    noise(1).save("photo.jpg")
    loaded = []
    monkeypatch.setattr(lookback, "load", lambda *a, **k: loaded.append((a, k)) or inside)
    names = {"__name__": "__main__", "photos": ["photo.jpg", noise(2)]}
    exec(blocks(read(ROOT / "docs" / "vllm.md"), "python")[0], names)
    assert loaded[0][1] == {"engine": "vllm", "tensor_parallel_size": 2}
    assert len(names["cands"]) == 25
    assert [len(one) for one in names["many"]] == [25, 25]
