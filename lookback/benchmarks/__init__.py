"""Benchmarks: items, prompts and metrics. One benchmark a file, all behind `get_benchmark`."""

from lookback.benchmarks.base import BENCHMARKS, GENERATED, Benchmark, Item, Items, get_benchmark

__all__ = ["BENCHMARKS", "GENERATED", "Benchmark", "Item", "Items", "get_benchmark"]
