"""vLLM's asynchronous engine on a thread of its own: requests in, tokens and signals out.

Callers of any thread share the engine's batch. A call that ends early, by an exception, a cancelled
coroutine or Ctrl-C, is aborted there and its signals are dropped.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import weakref
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4

from lookback.engines.vllm.client.results import Answer, Workers, finish_of
from lookback.engines.vllm.tap_request import TapRequest
from lookback.errors import UnsupportedModelError

if TYPE_CHECKING:
    from lookback.engines.common.options import Progress
    from lookback.engines.vllm.client.stream import (
        AsyncCallbackBridge,
        CallbackBridge,
        PartialCandidates,
        PartialRequest,
    )

T = TypeVar("T")
EXTENSION = "lookback.engines.vllm.worker.Extension"
IN_FLIGHT = 256
"""Questions and responses that are handed to vLLM at a time: its scheduler does the rest."""


class Client:
    """An `AsyncLLM` with the tap in its workers.

    Args:
        llm: vLLM's engine.
        workers: its workers.
        loop: the event loop that it runs on.

    Attributes:
        close: ends its processes, if `start` started them; so does garbage collection.
    """

    def __init__(self, llm: Any, workers: Workers, loop: asyncio.AbstractEventLoop) -> None:
        self.llm, self.workers, self._loop = llm, workers, loop
        self.close: Callable[[], Any] = lambda: None

    @classmethod
    async def around(cls, llm: Any) -> Client:
        """Install the tap in the workers of an engine that runs on this event loop.

        Raises:
            UnsupportedModelError: the model's attention cannot be read.
        """
        installed = await llm.collective_rpc("lookback_install")
        for worker in installed:
            if "error" in worker:
                raise UnsupportedModelError(f"vLLM: {worker['error']}")
        stages = int(llm.vllm_config.parallel_config.pipeline_parallel_size)
        return cls(llm, Workers.of(installed, stages), asyncio.get_running_loop())

    @classmethod
    def start(cls, arguments: Mapping[str, Any]) -> Client:
        """Start an engine on a thread of its own, with arguments of vLLM's `AsyncEngineArgs`.

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

    def run(self, work: Coroutine[Any, Any, T], callbacks: CallbackBridge | None = None) -> T:
        """Run a coroutine on the engine's thread, and its callbacks on this one meanwhile.

        If this thread is interrupted, the coroutine is cancelled.
        """
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            if callbacks is not None:
                callbacks.serve(future)
            return future.result()
        except BaseException:
            future.cancel()
            raise

    async def from_any_loop(
        self, work: Coroutine[Any, Any, T], callbacks: AsyncCallbackBridge | None = None
    ) -> T:
        """`run`, for a coroutine of whatever event loop."""
        if asyncio.get_running_loop() is self._loop and callbacks is None:
            return await work
        future = asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))
        try:
            if callbacks is not None:
                await callbacks.serve_coroutine(future)
            return await future
        except BaseException:
            future.cancel()
            raise

    async def render(self, text: str, media: Mapping[str, Any], add_special: bool) -> Any:
        """Return a prompt as the engine takes it: tokens, and what images and videos become.

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
        tap_request: TapRequest,
        n: int = 1,
        part: PartialRequest | None = None,
        **settings: Any,
    ) -> list[Answer]:
        """Send a request, wait for it, and fetch its signals.

        Args:
            prompt: what `render` returned.
            tap_request: what to record; it gets a key of its own.
            n: how many candidates.
            part: is updated while candidates are written.
            settings: of vLLM's `SamplingParams`.
        """
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind as Kind

        tap_request = replace(tap_request, key=uuid4().hex)
        params = SamplingParams(
            n=n,
            temperature=1.0,  # tokens are drawn by the tap
            extra_args=tap_request.extra(),
            output_kind=Kind.CUMULATIVE if part and part.candidates.streamed else Kind.FINAL_ONLY,
            **settings,
        )
        names = [f"{tap_request.key}/{i}" for i in range(n)]
        outputs: dict[int, Any] = {}
        if part is not None:
            part.begin(names)
        try:
            async with contextlib.aclosing(
                self.llm.generate(prompt, params, tap_request.key)
            ) as stream:
                async for out in stream:
                    outputs |= {output.index: output for output in out.outputs}
                    if part is not None:
                        part.update(out.outputs)
            by_worker = await self.llm.collective_rpc("lookback_take", args=(names,))
        except BaseException:
            # If the coroutine was cancelled, too: the engine continues without the request.
            with contextlib.suppress(Exception):
                await asyncio.shield(
                    self.llm.collective_rpc("lookback_drop", args=(tap_request.key,))
                )
            raise
        answers = [
            self._answer(tap_request, outputs[i], [records.get(name) for records in by_worker])
            for i, name in enumerate(names)
        ]
        if part is not None:
            part.end(names, answers)
        return answers

    async def peek(self, candidates: PartialCandidates, by_layer: bool) -> None:
        """Fetch the missing signals of candidates that are being written, in one call for all."""
        spans = candidates.missing()
        if not spans:
            return
        by_worker = await self.llm.collective_rpc("lookback_peek", args=(spans,))
        for name in spans:
            records = [worker[name] for worker in by_worker if name in worker]
            if len(records) == len(by_worker):
                candidates.add(name, self.workers.rows(records, by_layer, candidates.top))

    def _answer(self, tap_request: TapRequest, output: Any, records: Sequence[Any]) -> Answer:
        ids = list(tap_request.given) if tap_request.given is not None else list(output.token_ids)
        rows = self.workers.rows(records, tap_request.by_layer, tap_request.top)
        finish = finish_of(output) if tap_request.given is None else "given"
        return Answer(ids, rows[:, : len(ids)], finish)


async def gather_ordered(
    work: Iterable[Coroutine[Any, Any, Any]],
    total: int,
    return_exceptions: bool = False,
    progress: Progress | None = None,
) -> list[Any]:
    """Return the results of coroutines in order, `IN_FLIGHT` at a time; an error cancels the rest.

    With `return_exceptions`, an error is the result of its coroutine instead.
    """
    room, done = asyncio.Semaphore(IN_FLIGHT), 0

    async def run(part: Coroutine[Any, Any, Any]) -> Any:
        nonlocal done
        async with room:
            try:
                result = await part
            except Exception as error:
                if not return_exceptions:
                    raise
                result = error
        done += 1
        if progress is not None:
            progress(done, total)
        return result

    parts = list(work)
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(run(part)) for part in parts]
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    finally:
        for part in parts:
            part.close()  # those that never began
    return [task.result() for task in tasks]


def _shut_down(llm: Any, loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
    async def end() -> None:
        llm.shutdown()
        llm.shutdown = lambda *_, **__: None  # its finalizer would call it again at exit
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        loop.stop()

    asyncio.run_coroutine_threadsafe(end(), loop)
    if threading.current_thread() is not thread:
        thread.join(30)
