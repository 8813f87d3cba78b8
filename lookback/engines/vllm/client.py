"""vLLM's asynchronous engine on a thread of its own: requests in, tokens and numbers out.

Callers of any thread share the engine's batch. A call that is given up, by an exception, a
cancelled coroutine or Ctrl-C, is aborted there and its numbers are forgotten.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import weakref
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from lookback.engines.contract import UnsupportedModelError
from lookback.engines.vllm.asking import Asking
from lookback.engines.vllm.gathering import Workers

T = TypeVar("T")
EXTENSION = "lookback.engines.vllm.worker.Extension"


@dataclass
class Answer:
    """What came of one candidate of a request.

    Attributes:
        token_ids: its tokens; of a given response, those that were given.
        signals: (4, T): log p, A_t, self-certainty, entropy.
        by_layer: (T, L), if it was asked for.
        finish: "stop" or "length", as vLLM says.
        stop: the stop text or token that ended it.
    """

    token_ids: list[int]
    signals: NDArray[np.float32]
    by_layer: NDArray[np.float32] | None
    finish: str | None
    stop: int | str | None


class Client:
    """An `AsyncLLM` with the tap in its workers.

    Args:
        llm: vLLM's engine.
        workers: its workers, and what their taps read.
        loop: the event loop that it lives on.

    Attributes:
        close: ends its processes, if they are ours; whoever lets go of the client ends them too.
    """

    def __init__(self, llm: Any, workers: Workers, loop: asyncio.AbstractEventLoop) -> None:
        self.llm, self.workers, self._loop = llm, workers, loop
        self.close: Callable[[], Any] = lambda: None

    @classmethod
    async def around(cls, llm: Any) -> Client:
        """Put the tap into the workers of an engine that lives on this event loop.

        Raises:
            UnsupportedModelError: the model's attention cannot be read.
        """
        installed = await llm.collective_rpc("lookback_install")
        for one in installed:
            if "error" in one:
                raise UnsupportedModelError(f"vLLM: {one['error']}")
        stages = int(llm.vllm_config.parallel_config.pipeline_parallel_size)
        return cls(llm, Workers.of(installed, stages), asyncio.get_running_loop())

    @classmethod
    def start(cls, arguments: Mapping[str, Any]) -> Client:
        """Start an engine on a thread of its own.

        Args:
            arguments: of vLLM's `AsyncEngineArgs`.

        Raises:
            UnsupportedModelError: the model's attention cannot be read.
        """
        from vllm.engine.arg_utils import AsyncEngineArgs
        from vllm.v1.engine.async_llm import AsyncLLM

        async def make() -> Any:
            settings = AsyncEngineArgs(**arguments, worker_extension_cls=EXTENSION)
            return AsyncLLM.from_engine_args(settings)

        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_forever, name="lookback-vllm", daemon=True)
        thread.start()
        try:
            llm = asyncio.run_coroutine_threadsafe(make(), loop).result()
        except BaseException:
            loop.call_soon_threadsafe(loop.stop)
            raise
        try:
            client = asyncio.run_coroutine_threadsafe(cls.around(llm), loop).result()
        except BaseException:
            _shut_down(llm, loop, thread)
            raise
        client.close = weakref.finalize(client, _shut_down, llm, loop, thread)
        return client

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do something on the engine's thread; given up here, it is given up there."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    async def from_any_loop(self, work: Coroutine[Any, Any, T]) -> T:
        """The same for a coroutine of another event loop."""
        if asyncio.get_running_loop() is self._loop:
            return await work
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    async def render(self, text: str, media: Mapping[str, Any], add_special: bool) -> Any:
        """A prompt as the engine takes it: tokens, and what images and videos become.

        Raises:
            ValueError: vLLM refuses it.
        """
        from vllm.exceptions import VLLMValidationError
        from vllm.renderers.inputs.preprocess import parse_model_prompt

        renderer = self.llm.renderer
        prompt: dict[str, Any] = {"prompt": text}
        if media:
            prompt["multi_modal_data"] = dict(media)
        parsed = parse_model_prompt(self.llm.model_config, prompt)
        settings = renderer.default_cmpl_tok_params.with_kwargs(add_special_tokens=add_special)
        try:
            (rendered,) = await renderer.render_cmpl_async([parsed], settings)
        except VLLMValidationError as error:
            raise ValueError(f"vLLM refuses the prompt: {error}") from None
        return rendered

    async def ask(self, prompt: Any, asking: Asking, n: int = 1, **settings: Any) -> list[Answer]:
        """Send a request, wait for it, and fetch its numbers.

        Args:
            prompt: what `render` made.
            asking: what is recorded; it gets a key of its own.
            n: how many candidates.
            settings: of vLLM's `SamplingParams`.
        """
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        asking = replace(asking, key=uuid4().hex)
        params = SamplingParams(
            n=n,
            temperature=1.0,  # tokens are drawn by the tap
            extra_args=asking.extra(),
            output_kind=RequestOutputKind.FINAL_ONLY,
            **settings,
        )
        names = [f"{asking.key}/{i}" for i in range(n)]
        try:
            async for out in self.llm.generate(prompt, params, asking.key):
                final = out
            found = await self.llm.collective_rpc("lookback_take", args=(names,))
        except BaseException:
            # Also for a coroutine that was cancelled: the engine goes on, and forgets it.
            with contextlib.suppress(Exception):
                await asyncio.shield(self.llm.collective_rpc("lookback_drop", args=(asking.key,)))
            raise
        outputs = sorted(final.outputs, key=lambda one: one.index)
        return [
            self._answer(asking, one, [worker.get(name) for worker in found])
            for name, one in zip(names, outputs, strict=True)
        ]

    def _answer(self, asking: Asking, output: Any, records: Sequence[Any]) -> Answer:
        """One candidate: tokens as vLLM has them, numbers of all workers put together."""
        ids = list(asking.given) if asking.given is not None else list(output.token_ids)
        signals, layers = self.workers.signals(records, asking.by_layer)
        signals = signals[:, : len(ids)]
        layers = None if layers is None else layers[: len(ids)]
        return Answer(ids, signals, layers, output.finish_reason, output.stop_reason)


def _shut_down(llm: Any, loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
    """End an engine and its thread."""

    async def end() -> None:
        llm.shutdown()
        llm.shutdown = lambda *_, **__: None  # its finalizer would do so again, in a dying process
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        loop.stop()

    asyncio.run_coroutine_threadsafe(end(), loop)
    if threading.current_thread() is not thread:
        thread.join(30)
