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
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4

from lookback.engines.base import UnsupportedModelError
from lookback.engines.vllm.client.calls import Calls, CoroutineCalls
from lookback.engines.vllm.client.results import Answer, Workers, finish_of
from lookback.engines.vllm.tap_request import Asking

if TYPE_CHECKING:
    from lookback.engines.vllm.client.stream import Part, Writing

T = TypeVar("T")
EXTENSION = "lookback.engines.vllm.worker.Extension"


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

    def run(self, work: Coroutine[Any, Any, T], calls: Calls | None = None) -> T:
        """Do something on the engine's thread; given up here, it is given up there.

        Args:
            work: that.
            calls: what it wants called here meanwhile.
        """
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            if calls is not None:
                calls.serve(future)
            return future.result()
        except BaseException:
            future.cancel()
            raise

    async def from_any_loop(
        self, work: Coroutine[Any, Any, T], calls: CoroutineCalls | None = None
    ) -> T:
        """The same for a coroutine of another event loop."""
        if asyncio.get_running_loop() is self._loop and calls is None:
            return await work
        future = asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))
        try:
            if calls is not None:
                await calls.serve_coroutine(future)
            return await future
        except BaseException:
            future.cancel()
            raise

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

    async def ask(
        self,
        prompt: Any,
        asking: Asking,
        n: int = 1,
        part: Part | None = None,
        **settings: Any,
    ) -> list[Answer]:
        """Send a request, wait for it, and fetch its numbers.

        Args:
            prompt: what `render` made.
            asking: what is recorded; it gets a key of its own.
            n: how many candidates.
            part: where to say what is known of them while they are written, if it matters.
            settings: of vLLM's `SamplingParams`.
        """
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind as Kind

        asking = replace(asking, key=uuid4().hex)
        params = SamplingParams(
            n=n,
            temperature=1.0,  # tokens are drawn by the tap
            extra_args=asking.extra(),
            output_kind=Kind.CUMULATIVE if part and part.writing.heard else Kind.FINAL_ONLY,
            **settings,
        )
        names = [f"{asking.key}/{i}" for i in range(n)]
        outputs: dict[int, Any] = {}
        if part is not None:
            part.begin(names)
        try:
            async with contextlib.aclosing(self.llm.generate(prompt, params, asking.key)) as told:
                async for out in told:
                    outputs |= {one.index: one for one in out.outputs}
                    if part is not None:
                        part.see(out.outputs)
            found = await self.llm.collective_rpc("lookback_take", args=(names,))
        except BaseException:
            # Also for a coroutine that was cancelled: the engine goes on, and forgets it.
            with contextlib.suppress(Exception):
                await asyncio.shield(self.llm.collective_rpc("lookback_drop", args=(asking.key,)))
            raise
        answers = [
            self._answer(asking, outputs[i], [worker.get(name) for worker in found])
            for i, name in enumerate(names)
        ]
        if part is not None:
            part.end(names, answers)
        return answers

    async def peek(self, writing: Writing, by_layer: bool) -> None:
        """Fetch what the tap has of candidates that are being written, in one call for all."""
        spans = writing.missing()
        if not spans:
            return
        found = await self.llm.collective_rpc("lookback_peek", args=(spans,))
        for name in spans:
            records = [worker[name] for worker in found if name in worker]
            if len(records) == len(found):
                writing.add(name, self.workers.rows(records, by_layer, writing.top))

    def _answer(self, asking: Asking, output: Any, records: Sequence[Any]) -> Answer:
        """One candidate: tokens as vLLM has them, numbers of all workers put together."""
        ids = list(asking.given) if asking.given is not None else list(output.token_ids)
        rows = self.workers.rows(records, asking.by_layer, asking.top)
        finish = finish_of(output) if asking.given is None else "given"
        return Answer(ids, rows[:, : len(ids)], finish)


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
