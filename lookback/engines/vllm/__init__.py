"""Signals from models inside vLLM: its batching, caches and parallelism, our numbers."""

from __future__ import annotations

import os
from multiprocessing import current_process
from typing import Any

from lookback.embedded import LVLM
from lookback.engines import engine as register
from lookback.engines.vllm.compat import RUNNER_VARIABLE, check_version, engine_arguments
from lookback.errors import check_flag


@register("vllm")
def load(
    model: Any = None,
    processor: Any = None,
    *,
    dtype: Any = None,
    revision: str | None = None,
    trust_remote_code: bool = False,
    prompt: str | None = None,
    quiet: bool = False,
    **vllm_args: Any,
) -> Any:
    """Models inside vLLM: continuous batching, prefix caching, tensor parallelism.

    Args:
        model: a hub id or a folder; by default the embedded one, which knows drawn scenes only.
        processor: where to load the processor from; the model's own by default.
        dtype: of the weights; by default float32 on a CPU, elsewhere the checkpoint's own.
        revision: Hub revision: branch, tag or commit.
        trust_remote_code: run code that comes with the model.
        prompt: how to ask, with `{image}`, `{question}` and `{response}`, where the processor has
            no chat template or another prompt is wanted.
        quiet: no progress bars and messages of vLLM.
        vllm_args: as vLLM's engine takes them: `tensor_parallel_size`, `max_model_len`,
            `gpu_memory_utilization`, `enable_prefix_caching`, ...

    Raises:
        ImportError: vLLM is not installed, or of another release.
        UnsupportedModelError: its visual lookback cannot be read.
        SettingError: vLLM has no such setting, or the tap does not work with it.
        RuntimeError: this process may not start others.
    """
    if quiet:
        os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    os.environ.setdefault(RUNNER_VARIABLE, "0")
    version = check_version()
    if current_process().daemon:
        raise RuntimeError(
            "vLLM starts processes of its own, which a worker process of this machine may not: use "
            "--workers 1 (one engine keeps the machine busy), --ray, or --shard"
        )
    from lookback.engines.common.model_files import find_folder, load_processor
    from lookback.engines.vllm.client.client import Client
    from lookback.engines.vllm.client.scoring import refuse_wrong_numbers
    from lookback.engines.vllm.engine import VllmEngine

    if not isinstance(model, (str, os.PathLike)) and model is not None:
        raise TypeError(
            f"the vllm engine loads a model by its hub id or folder, got {type(model).__name__}: "
            "a ready model runs on engine='transformers'"
        )
    label = "embedded" if model is None else None
    name = find_folder(LVLM if model is None else model)
    check_flag("trust_remote_code", trust_remote_code)
    hub = {"revision": revision, "trust_remote_code": trust_remote_code}
    own = {} if dtype is None else {"dtype": str(dtype).removeprefix("torch.")}
    arguments = engine_arguments({"model": name} | own | hub | vllm_args)
    if processor is None or isinstance(processor, (str, os.PathLike)):
        processor = load_processor(find_folder(processor or name), **hub)
    client = Client.start(arguments)
    try:
        engine = VllmEngine(
            client, processor, name=label or name, vllm=version, revision=revision, prompt=prompt
        )
        client.run(refuse_wrong_numbers(engine))
    except BaseException:
        client.close()
        raise
    return engine
