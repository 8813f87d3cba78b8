# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # A scorer of my own, from idea to table
#
# A scorer is a function from recorded signals to a number per answer, higher is better. This
# notebook goes the whole way: an idea, a function, a try on recorded answers, a small run, the
# paper's table with our row in it, and whether the difference is one.
#
# ## The idea
#
# A hallucination is often a single word. A mean forgives it: ten good words hide a bad one. So let
# an answer be as good as its least likely word, among those that look at the image.
#
# ## The function
#
# It gets a *batch*: the tokens of all answers one after another, and each answer's `lengths`. In a
# file of its own it works everywhere: `--plugin weakest.py`.

# %%
import os
from pathlib import Path

os.environ.pop("FORCE_COLOR", None)  # Jupyter sets it; commands below shall print plain lines
_ = Path("weakest.py").write_text('''
import numpy as np

import lookback


@lookback.scorer("weakest", title="Weakest look", color="#b45309")
def weakest(batch):
    """The least log p_t of an answer, each weighted by A_t: where it looked and doubted."""
    starts = np.cumsum(batch.lengths) - batch.lengths
    return np.minimum.reduceat(batch.visual_lookback * batch.log_prob, starts)
''')

# %% [markdown]
# ## Try it on recorded answers
#
# Signals are recorded once; a scorer is tried on them as often as we like, without the model.

# %%
import numpy as np

import lookback
from lookback.benchmarks import get_benchmark
from lookback.registry import load_plugin

load_plugin("weakest.py")
item = get_benchmark("scenes-caption").items("test")[0]
lb = lookback.load(quiet=True)
cands = lb.sample(item.image, item.question, n=8, seed=42, max_new_tokens=120)
for candidate in cands.rank("weakest"):
    doubt = np.argmin(candidate.visual_lookback * candidate.log_prob)
    print(f"{candidate.score:7.3f}  doubts {candidate.tokens[doubt]!r:10} {candidate.text}")

# %% [markdown]
# Is it what we meant? A slow and plain computation says so, or stops here.

# %%
by_hand = [min(a * p for a, p in zip(c.visual_lookback, c.log_prob, strict=True)) for c in cands]
assert np.allclose(cands.scores("weakest"), by_hand)

# %% [markdown]
# ## A small run
#
# 30 items of the *tune* split, 8 answers each. Ideas are tried on `tune`: what is looked at twice
# on `test` is no test any more. How far it is goes to stderr, here into a file.

# %% language="bash"
# lookback run --benchmark scenes-caption --split tune --limit 30 -n 8 --out runs/idea 2> log.txt

# %% [markdown]
# ## The paper's table, with our row in it

# %% language="bash"
# lookback study main runs/idea --plugin weakest.py --out tables > log.txt

# %%
from IPython.display import Image, Markdown

Markdown(filename="tables/main.md")

# %%
Image("tables/main.png")

# %% [markdown]
# ## The honest interval
#
# The rows' intervals may overlap, but both scorers pick from the same answers to the same
# questions: what tells them apart is the *difference per item*. Its 95 % interval, by 2,000
# bootstrap samples of items:

# %%
run = lookback.open_run("runs/idea")
quality = run.quality()  # (items, n)
rows = np.arange(len(quality))


def outcome(scorer):
    """The quality of what a scorer picks, per item."""
    return quality[rows, run.scores(scorer).argmax(1)]


def lead(first, second):
    """The mean difference in points, and its 95 % interval."""
    difference = 100 * (outcome(first) - outcome(second))
    chosen = np.random.default_rng(0).integers(len(rows), size=(2000, len(rows)))
    return difference.mean(), *np.percentile(difference[chosen].mean(1), [2.5, 97.5])


for other in ("lookback", "mean_log_prob", "self_certainty"):
    mean, low, high = lead("weakest", other)
    verdict = "better" if low > 0 else "worse" if high < 0 else "not told apart by 30 items"
    print(f"over {other:15} {mean:+6.1f} [{low:+.1f}, {high:+.1f}]  {verdict}")

# %% [markdown]
# An interval that holds 0 says that 30 items cannot tell, not that the two are equal. It narrows
# with the square root of the number of items: four times as many halve it (`--limit 120`; the same
# command goes on where it was only with the same settings, so give it another `--out`).
#
# ## And now
#
# - Try variants: every change of `weakest.py` and `lookback study main` is seconds, as no model is
#   loaded.
# - When one is chosen, and not before: `--split test`, once.
# - What the image has to do with it: `lookback run --candidates runs/idea --image random --out
#   runs/idea-random`, and `lookback study random-image runs/idea runs/idea-random --plugin
#   weakest.py`.
# - Into LookBack itself: [CONTRIBUTING](../CONTRIBUTING.md#a-scorer).
