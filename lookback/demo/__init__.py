"""The demo: one held-out scene, 25 answers of the embedded model, and who picks which of them.

    asked      an item with its answers and how good they are; the rule that picks the item
    measured   how good each scorer's picks are on the whole tasks, from runs
    screen     all of it in a terminal
    page       all of it as a page

`make demo`, or `python -m lookback.demo --help`.
"""
