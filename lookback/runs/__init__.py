"""Runs on disk: the candidates for every item of a benchmark, with their signals, kept for good."""

from lookback.runs.run import Run, open_run, open_runs

__all__ = ["Run", "open_run", "open_runs"]
