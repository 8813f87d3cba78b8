"""Many coroutines at a time, their results in order."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any

from lookback.engines.contract import Progress

IN_FLIGHT = 256
"""Questions and responses that are handed to vLLM at a time: its scheduler does the rest."""


async def together(
    work: Iterable[Coroutine[Any, Any, Any]],
    total: int,
    return_exceptions: bool = False,
    progress: Progress | None = None,
) -> list[Any]:
    """Results of coroutines in their order, so many of them in flight; the first error ends all."""
    room, done = asyncio.Semaphore(IN_FLIGHT), 0

    async def one(part: Coroutine[Any, Any, Any]) -> Any:
        nonlocal done
        async with room:
            try:
                found = await part
            except Exception as error:
                if not return_exceptions:
                    raise
                found = error
        done += 1
        if progress is not None:
            progress(done, total)
        return found

    parts = list(work)
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(part)) for part in parts]
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    finally:
        for part in parts:
            part.close()  # those that never began
    return [task.result() for task in tasks]
