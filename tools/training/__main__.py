"""`python -m tools.training`: train both embedded models, put them in place."""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from pathlib import Path

from lookback.embedded import CLIP, LVLM
from tools.training.parallel import train_and_export
from tools.training.recipe import FULL, TINY


def main() -> None:
    """Parse, train, say how long it took."""
    parser = argparse.ArgumentParser(prog="python -m tools.training")
    parser.add_argument("--folder", type=Path, default=Path("build/embedded"), help="checkpoints")
    parser.add_argument("--lvlm", type=Path, default=LVLM, help="where the LVLM goes")
    parser.add_argument("--clip", type=Path, default=CLIP, help="where the dual encoder goes")
    parser.add_argument("--processes", type=int, default=2, help="of one thread each")
    parser.add_argument("--tiny", action="store_true", help="seconds, not most of an hour; useless")
    parser.add_argument("--seed", type=int, default=FULL.seed, help="weights and scenes")
    given = parser.parse_args()
    start = time.monotonic()
    recipe = replace(TINY if given.tiny else FULL, seed=given.seed)
    train_and_export(recipe, given.folder, given.lvlm, given.clip, given.processes)
    print(f"{(time.monotonic() - start) / 60:.1f} minutes: {given.lvlm} and {given.clip}")


if __name__ == "__main__":
    main()
