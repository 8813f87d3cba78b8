"""The main job on the embedded model: ask about a held-out scene 25 times, rank, compare.

Prints the picture, what four scorers pick, the greedy answer and the scores of all answers, and
writes the same as a page to build/demo.html. `python examples/demo.py --help` for other scenes and
tasks; the code is lookback/demo.
"""

from lookback.demo.__main__ import main

if __name__ == "__main__":
    main()
