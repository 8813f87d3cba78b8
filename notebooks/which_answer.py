# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Which answer does the image support?
#
# Five minutes, on the embedded model: a small vision-language model that comes with the package,
# really trained, on drawn scenes and nothing else ([its card](../docs/embedded.md)). With
# `lookback.load("a hub id")` the same cells ask a real one.

# %%
import numpy as np
from PIL import Image

import lookback
from lookback.benchmarks import get_benchmark

lb = lookback.load(quiet=True)
benchmark = get_benchmark("scenes-vqa")
items = benchmark.items("test")  # scenes that the model was not trained on
item = items[133]  # the one of `make demo`, which says by which rule it was picked
print(item.question, "Right is:", item.truth["answer"])
item.image.resize((256, 256), Image.Resampling.NEAREST)

# %% [markdown]
# ## Sample and rank
#
# Ask 25 times. Each answer comes with four numbers per token, recorded while it was written: log
# p, the share A of attention on the image, self-certainty, entropy. In a notebook candidates show
# their ranking by LookBack, and the best answer shaded by A.

# %%
cands = lb.sample(item.image, item.question, n=25, seed=42, max_new_tokens=120)
cands[:6]  # the first six of them; `cands` shows all

# %% [markdown]
# Who picks what? The scene is known, so each pick has a quality: 1 if it is right, else 0. Greedy
# decoding picks nothing: it asks once and takes the most likely token each time.

# %%
scorers = ("lookback", "mean_log_prob", "consensus", "self_certainty", "visual_lookback")
(greedy,) = lb.sample(item.image, item.question, n=1, temperature=0.0, max_new_tokens=120)
for name, pick in {**{name: cands.best(name) for name in scorers}, "greedy": greedy}.items():
    print(f"{name:16} quality {benchmark.score(item, pick.text):.2f}  {pick.text}")
quality = benchmark.scores(item, [c.text for c in cands])
print(f"{'a coin':16} quality {np.mean(quality):.2f}  on average")

# %% [markdown]
# ## α and λ
#
# The score is Σ q(t) (log p_t + α log A_t) with q(t) ∝ A_t^λ. α says how much looking counts, λ
# how much more those tokens count that look. Signals are recorded once: every setting is
# arithmetic.

# %%
for alpha, lam in [(0, 0), (0.25, 1.25), (0.5, 2), (7, 1.5)]:
    pick = cands.best("lookback", alpha=alpha, lam=lam)
    print(f"α {alpha:<4} λ {lam:<4} score {pick.score:7.3f}  {pick.text}")

# %%
best = cands.best()
same = lookback.lookback_score(best.log_prob, best.visual_lookback, **cands.defaults)
assert abs(same - best.score) < 1e-6  # the formula on two arrays, and nothing else
best

# %% [markdown]
# ## With the image, with another, with none
#
# The same 25 answers, scored three times; only the image changes. Values that move say little by
# themselves: what counts is whether other answers are picked.

# %%
scored = {
    "own image": cands,
    "another image": lb.score(items[0].image, item.question, cands),
    "no image": lb.score(None, item.question, cands, source="none"),
}
print(f"{'':14} {'log p':>8} {'A':>7} {'self-certainty':>15}")
for name, same_answers in scored.items():
    means = [
        np.mean([getattr(c, signal).mean() for c in same_answers])
        for signal in ("log_prob", "visual_lookback", "self_certainty")
    ]
    print("{:14} {:8.3f} {:7.3f} {:15.3f}".format(name, *means))
for name, same_answers in scored.items():
    for scorer in ("mean_log_prob", "self_certainty"):
        print(f"{name:14} {scorer:15} picks: {same_answers.best(scorer).text}")

# %% [markdown]
# ## Is it luck?
#
# One item shows nothing. A hundred show a little: the mean quality of the picks, and LookBack's
# lead over each with a 95 % interval (bootstrap over items). An interval that holds 0 is no lead.


# %%
def compare(task, count=100, n=25):
    """Print what each way to answer is worth on the first items of a task."""
    benchmark = get_benchmark(task)
    outcomes = {name: [] for name in (*scorers, "greedy", "a coin")}
    for some in benchmark.items("test")[:count]:
        asked = {"question": some.question, "max_new_tokens": 120}
        drawn = lb.sample(some.image, n=n, seed=42, **asked)
        (greedy,) = lb.sample(some.image, n=1, temperature=0.0, **asked)
        for name in scorers:
            outcomes[name].append(benchmark.score(some, drawn.best(name).text))
        outcomes["greedy"].append(benchmark.score(some, greedy.text))
        outcomes["a coin"].append(np.mean(benchmark.scores(some, [c.text for c in drawn])))
    resampled = np.random.default_rng(0).integers(count, size=(2000, count))
    for name, values in outcomes.items():
        lead = 100 * (np.array(outcomes["lookback"]) - values)
        low, high = np.percentile(lead[resampled].mean(1), [2.5, 97.5])
        told = f"  LookBack's lead {lead.mean():+5.1f} [{low:+.1f}, {high:+.1f}]"
        print(f"{name:16} {100 * np.mean(values):5.1f}{'' if name == 'lookback' else told}")


compare("scenes-vqa")

# %% [markdown]
# LookBack is well ahead of a coin and of self-certainty. It is level with mean log p, which is
# LookBack without A, and with greedy decoding: on this model log p carries the gain. The paper
# measured LookBack on LLaVA-1.5-7B, Qwen2.5-VL-7B and InternVL3-8B, where it has the highest
# average of six methods; mean log p and greedy decoding are not among them.
#
# ## A task on which it gains nothing
#
# Short descriptions: a poor one is poor by what it leaves out, and a mean over the tokens that were
# said knows nothing of that. The consensus of the texts does. Quality is the F1 of the things that
# a description names.

# %%
compare("scenes-caption")

# %% [markdown]
# The same for 250 items, four tasks and 25 answers each is `make reproduce`: [the paper at small
# scale](../docs/reproduction.md). Which scorer to take: [choosing](../docs/choosing.md).
#
# ## What it cannot do
#
# A score says that the model was confident where it looked at the image, not that it is right. The
# best of 25 wrong answers is a wrong answer: here is what this model says about noise, and its
# score.

# %%
noise = Image.effect_noise((64, 64), 80).convert("RGB")
nonsense = lb.sample(noise, item.question, n=8, seed=42, max_new_tokens=120).best()
print(nonsense.text, f"{nonsense.score:.3f}")

# %% [markdown]
# Scores of answers to *one* question can be compared; scores of different questions, images or
# models cannot. The rest of the list: [what it cannot do](../docs/what-it-cannot-do.md). Next: [a
# scorer of my own](own_scorer.py).
