"""Benchmarks: items, prompts and metrics. One benchmark per file, all behind `get_benchmark`."""

from lookback.benchmarks.base import (
    BENCHMARKS,
    GENERATED,
    Benchmark,
    Item,
    Items,
    MeanOfScores,
    benchmark,
    get_benchmark,
)

__all__ = [
    "BENCHMARKS",
    "GENERATED",
    "Benchmark",
    "Item",
    "Items",
    "MeanOfScores",
    "benchmark",
    "get_benchmark",
]
