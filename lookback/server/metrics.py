"""What Prometheus reads at /metrics; no text of anybody is in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from lookback.server.responses import drawn
from lookback.server.scheduler import Desk
from lookback.signals import PRUNED, Candidates

if TYPE_CHECKING:
    from lookback.engines.base import PrefixCounts

SECONDS = (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 60, 120)


class Metrics:
    """Numbers of one server.

    Args:
        desk: how many wait and are at work.
        prefixes: the engine's prompts that are kept, if it keeps any.
    """

    def __init__(self, desk: Desk, prefixes: PrefixCounts | None = None) -> None:
        self.registry = CollectorRegistry()

        def counter(name: str, about: str, *labels: str) -> Counter:
            return Counter(f"lookback_{name}", about, labels, registry=self.registry)

        def histogram(name: str, about: str, *labels: str) -> Histogram:
            whole = f"lookback_{name}"
            return Histogram(whole, about, labels, buckets=SECONDS, registry=self.registry)

        self.requests = counter("requests", "Requests that were answered", "path", "status")
        self.seconds = histogram("request_seconds", "From the request to its answer", "path")
        self.waited = histogram("queue_seconds", "In the line, until the work began")
        self.prompt_tokens = counter("prompt_tokens", "Tokens of prompts")
        self.tokens = counter("tokens", "Tokens that were drawn, of all candidates")
        self.candidates = counter("candidates", "Candidates that were drawn")
        self.pruned = counter("candidates_pruned", "Candidates that were ended early")
        self.gone = counter("clients_gone", "Requests whose client went away")
        self.late = counter("deadlines", "Requests that took too long")
        waiting = Gauge("lookback_queue", "Requests that wait", registry=self.registry)
        waiting.set_function(lambda: desk.waiting)
        at_work = Gauge("lookback_in_flight", "Requests at work", registry=self.registry)
        at_work.set_function(lambda: desk.at_work)

        if prefixes is not None:
            self._watch_prefixes(prefixes)

    def _watch_prefixes(self, prefixes: PrefixCounts) -> None:
        prompts = Gauge(
            "lookback_prompts",
            "Prompts: kept ones asked again, begun as a kept one, or new",
            ["kind"],
            registry=self.registry,
        )
        for kind in ("same", "continued", "new"):
            prompts.labels(kind).set_function(lambda kind=kind: getattr(prefixes, kind))  # type: ignore[misc]
        saved = Gauge(
            "lookback_prompt_tokens_saved",
            "Tokens of prompts that did not go through the model",
            registry=self.registry,
        )
        saved.set_function(lambda: prefixes.saved)

    def drew(self, found: Candidates) -> None:
        """Candidates were drawn."""
        self.prompt_tokens.inc(len(found.prompt_ids))
        self.tokens.inc(drawn(found))
        self.candidates.inc(len(found))
        self.pruned.inc(sum(one.finish == PRUNED for one in found))

    def text(self) -> tuple[bytes, str]:
        """As Prometheus reads it, and of what type that is."""
        return generate_latest(self.registry), CONTENT_TYPE_LATEST
