"""`python -m lookback.cli` is the `lookback` command."""

from lookback.cli import main

main()
