"""The package's own models: a small LVLM, and a dual encoder for CLIPScore.

Both know drawn scenes (`lookback.benchmarks.scenes`) and nothing else. They are folders in the
ordinary transformers format; `make train-embedded` makes them, docs/embedded.md is their card.
"""

from __future__ import annotations

from pathlib import Path

LVLM = Path(__file__).parent / "lvlm"
CLIP = Path(__file__).parent / "clip"
