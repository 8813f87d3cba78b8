"""Bad inputs for the `lookback` command: made from a seed, run in forks, judged by one rule.

A kind of input is a file here with one function, `make`, from a random generator and a `Place` to a
`Case`: the arguments of a command, and files that it finds in its folder. `known.py` has cases that
failed once. `worker.py` runs a case, `judging.py` says whether it ended as promised, and
`python -m hostile` (`make hostile N=10000`) runs many and shows a table.
"""
