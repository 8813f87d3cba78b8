"""The extension of vLLM's worker class: LookBack's methods for `collective_rpc`.

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
        """Install the tap, unless it is installed, and return what it reads."""
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
        """Remove the tap or install it again, to measure what it costs in one engine."""
        if on:
            self._lookback_tap.install()
        else:
            self._lookback_tap.remove()

    def lookback_take(self, names: list[str]) -> dict[str, Packed]:
        """Return the signals of some responses, and drop them here."""
        return self._lookback_tap.ledger.take(names)

    def lookback_peek(self, spans: dict[str, list[int]]) -> dict[str, Packed]:
        """Return the signals of some tokens of responses that are being written."""
        return self._lookback_tap.ledger.peek(spans)

    def lookback_drop(self, key: str) -> None:
        """Drop the signals of a request that was aborted."""
        self._lookback_tap.ledger.drop(key)

    def lookback_held(self) -> dict[str, int]:
        """Return how many responses and requests the tap keeps."""
        tap = self._lookback_tap
        return {"responses": len(tap.ledger), "requests": len(tap.requests)}

    def lookback_watch(self, on: bool) -> list[tuple[int, float, float]] | None:
        """Begin a self-test, or end it and return (layer, tap, plain computation) of each row."""
        from lookback.engines.vllm.worker.self_test import SelfTest

        tap = self._lookback_tap
        if on:
            tap.self_test = SelfTest(tap)
            return None
        results, tap.self_test = tap.self_test.results, None
        return list(results)
