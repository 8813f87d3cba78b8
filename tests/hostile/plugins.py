"""Plugins: files that are no Python, that raise, end the process, or give what cannot be used."""

from hostile.case import TOY, Case
from hostile.values import odd_path, write_picture

BROKEN = (
    *("raise ValueError('no')", "1 / 0", "import nope_nope", "def f(:\n", "exit(3)", "{}['x']"),
    *("raise SystemExit(0)", "import sys; sys.exit('bye')", "raise Exception('a\\nb\\x1b[31m')"),
    *("raise KeyError", "assert False", "def f(): f()\nf()", "\x00", "raise StopIteration"),
    *("class E(Exception):\n def __str__(self): return 1 / 0\nraise E", "raise RecursionError", ""),
)
DECORATED = (
    "@lookback.scorer('lookback')\ndef f(batch):\n '''x'''\n return 1",
    "@lookback.scorer('')\ndef f(batch):\n '''x'''\n return 1",
    "@lookback.scorer('mine')\ndef f():\n '''x'''\n return 1",
    "@lookback.scorer('mine')\ndef f(batch): return 1",
    "@lookback.scorer(3)\ndef f(batch): return 1",
    "lookback.scorer('mine')(3)",
    "@lookback.engine('mine')\ndef f(model=None, processor=None):\n '''x'''\n return None",
    "@lookback.engine('mine')\ndef f():\n '''x'''\n raise RuntimeError('a\\nb')",
    "@lookback.metric('mine')\ndef f(a, b):\n '''x'''\n return 'x'",
)
RESULTS = (
    *("1 / 0", "None", "'x'", "[1]", "[]", "float('nan')", "batch", "batch.log_prob", "batch.nope"),
    *("[float('inf')] * len(batch.texts)", "[None, None]", "{}", "1j", "[[1, 2]]", "exit(3)"),
    *("(_ for _ in ()).throw(KeyError('x'))", "batch.mean(batch.log_prob)", "open('/nope')"),
)


def make(rng, place):
    """A command with a plugin that cannot be trusted."""
    write_picture(place.folder / "p.png")
    ask = ["ask", "p.png", "What is it?", "-n", "2", "--plugin", TOY, "--engine", "toy"]
    chance = rng.random()
    if chance < 0.15:
        given = rng.choice((odd_path(rng, place.folder), "nope.nope", "os", ".", "a b", "json.py"))
        argv = [*rng.choice((["scorers"], ask)), "--plugin", given]
        return Case(tuple(argv), f"plugin {given[:40]!r}")
    if chance < 0.5:
        code = rng.choice(BROKEN)
        argv = rng.choice((["scorers"], ["studies"], ask))
    elif chance < 0.65:
        code = f"import lookback\n{rng.choice(DECORATED)}\n"
        argv = rng.choice((["scorers"], [*ask, "--scorer", "mine"], ["check", "--engine", "mine"]))
    else:
        result = rng.choice(RESULTS)
        joint = rng.choice(("", "", ", joint=True", ", lower_is_better=True", ", nope=1"))
        code = (
            f"import lookback\n@lookback.scorer('mine'{joint})\ndef mine(batch, a=1):\n"
            f"    '''x'''\n    return {result}\n"
        )
        argv = rng.choice(
            ([*ask, "--scorer", "mine"], ["study", "main", str(place.run)], ["scorers"])
        )
    (place.folder / "mine.py").write_text(code)
    if rng.random() < 0.2:
        environment = {"LOOKBACK_PLUGINS": "mine.py"}
        return Case(tuple(argv), code, ("studies", "__pycache__"), environment=environment)
    return Case((*argv, "--plugin", "mine.py"), code, own=("studies", "__pycache__"))
