"""`lookback demo`: one held-out scene, 25 answers of the embedded model, what each scorer picks.

asked      an item with its answers and how good they are; the rule that picks the item
measured   how good each scorer's picks are on the whole tasks, from runs
screen     all of it in a terminal
page       all of it as a page
"""

TASK = "scenes-vqa"
"""Asked about unless another task is named. Here, as `lookback --help` must not import the rest."""
