"""The paper's whole search space over a large run: 168 settings x 25,000 responses x 60 tokens."""

import time

import numpy as np

from lookback.scores.formula import ALPHAS, LAMBDAS, lookback_score, lookback_scores

RESPONSES = 1000 * 25


def main() -> None:
    rng = np.random.default_rng(0)
    lengths = rng.integers(30, 91, RESPONSES)
    log_prob, a = -rng.exponential(size=lengths.sum()), rng.uniform(size=lengths.sum())
    times = []
    for _ in range(5):
        start = time.perf_counter()
        lookback_scores(log_prob, a, lengths, ALPHAS, LAMBDAS)
        times.append(time.perf_counter() - start)
    ends = np.cumsum(lengths)[:200]
    start = time.perf_counter()
    for alpha in ALPHAS[:2]:
        for lam in LAMBDAS[:2]:
            for end, length in zip(ends, lengths[:200], strict=True):
                lookback_score(log_prob[end - length : end], a[end - length : end], alpha, lam)
    one_by_one = (time.perf_counter() - start) / (4 * 200) * 168 * RESPONSES
    print(
        f"168 settings x {RESPONSES:,} responses ({lengths.sum():,} tokens): "
        f"{sorted(times)[2]:.2f} s; one call each would take {one_by_one:,.0f} s"
    )


if __name__ == "__main__":
    main()
