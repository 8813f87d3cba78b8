"""What a vLLM worker can be asked by `collective_rpc`: its extension class.

Importing this module prepares the worker; vLLM does so before it loads the model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lookback.engines.vllm.compat import accept_tower_names

if TYPE_CHECKING:
    from lookback.engines.vllm.worker.ledger import Packed

accept_tower_names()


class Extension:
    """Mixed into vLLM's worker class: `worker_extension_cls`."""

    model_runner: Any

    def lookback_install(self) -> dict[str, Any]:
        """Put in the tap, if it is not in already; what it reads."""
        from lookback.engines.vllm.worker.tap import Tap, TapError, backend_name

        tap = getattr(self, "_lookback_tap", None)
        if tap is None:
            try:
                tap = self._lookback_tap = Tap(self.model_runner)
            except TapError as error:
                return {"error": str(error)}
        return {
            "layers": len(tap.layers),
            "heads": tap.heads,
            "backend": backend_name(tap.layers),
        }

    def lookback_switch(self, on: bool) -> None:
        """Take the tap out or put it in again: what it costs can be measured in one engine."""
        if on:
            self._lookback_tap.open()
        else:
            self._lookback_tap.close()

    def lookback_take(self, names: list[str]) -> dict[str, Packed]:
        """The numbers of some responses, which are then forgotten here."""
        return self._lookback_tap.ledger.take(names)

    def lookback_peek(self, spans: dict[str, list[int]]) -> dict[str, Packed]:
        """The numbers of some tokens of responses that are being written."""
        return self._lookback_tap.ledger.peek(spans)

    def lookback_drop(self, key: str) -> None:
        """Forget a request that was given up."""
        self._lookback_tap.ledger.drop(key)

    def lookback_held(self) -> dict[str, int]:
        """What the tap keeps: responses that nobody fetched, and requests that it knows."""
        tap = self._lookback_tap
        return {"responses": len(tap.ledger), "requests": len(tap.requests)}

    def lookback_watch(self, on: bool) -> list[tuple[int, float, float]] | None:
        """Begin or end a self-test: (layer, tap, plain computation) of each row that was asked."""
        from lookback.engines.vllm.worker.self_test import Plain

        tap = self._lookback_tap
        if on:
            tap.watch = Plain(tap)
            return None
        found, tap.watch = tap.watch.found, None
        return list(found)
