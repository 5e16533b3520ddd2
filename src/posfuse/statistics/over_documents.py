"""Statistics over test documents and seeds, as plain functions on arrays.

Shapes: S seeds, D documents, G groups of documents.
"""

from collections.abc import Iterator
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from posfuse.statistics.paired import NONE, Interval

MOST_DRAWS = 2**26  # in memory at once, 4 bytes each
SEED = (0, 1)  # of the draws of documents


def hierarchical_bootstrap(
    differences: ArrayLike,
    level: float = 0.95,
    resamples: int = 2_000,
    groups: ArrayLike | None = None,
) -> Interval:
    """Percentile interval of the mean of (S, D) when both seeds and documents are resampled.

    Rows and columns are drawn independently (the pigeonhole bootstrap, Owen 2007). Documents with
    the same number in `groups` (D,) are drawn together (Davison & Hinkley 1997, section 3.8). A
    bootstrap of few seeds spreads too little, so each seed's distance from the mean is first
    multiplied by the ratio of Student's t to the normal quantile.
    """
    x = np.asarray(differences, dtype=np.float32)
    n_seeds, n_documents = x.shape
    if n_seeds < 2:
        return NONE
    tail = (1 + level) / 2
    widen = np.sqrt(n_seeds / (n_seeds - 1)) * stats.t.ppf(tail, n_seeds - 1) / stats.norm.ppf(tail)
    x = x + np.float32(widen - 1) * (x.mean(1, keepdims=True) - x.mean())
    group = np.unique(np.arange(n_documents) if groups is None else groups, return_inverse=True)[1]
    sizes = np.bincount(group).astype(np.float32)
    totals = np.zeros((len(sizes), n_seeds), np.float32)
    np.add.at(totals, group, x.T)
    rng = np.random.default_rng(0)
    rows = rng.multinomial(n_seeds, np.full(n_seeds, 1 / n_seeds), resamples).astype(np.float32)
    means = np.concatenate([
        np.einsum("bg,bg->b", rows[some] @ totals.T, columns) / (n_seeds * (columns @ sizes))
        for some, columns in draw_blocks(len(sizes), resamples)
    ])  # fmt: skip
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def draw_blocks(n_groups: int, resamples: int) -> Iterator[tuple[slice, NDArray[np.float32]]]:
    """The counts of each group of documents in each resample, in blocks of resamples that fit into
    memory: the resamples of a block, and their counts (resamples, G)."""
    size = max(1, MOST_DRAWS // n_groups)
    if size >= resamples:
        yield slice(None), group_draws(n_groups, resamples)
        return
    rng = np.random.default_rng(SEED)
    for start in range(0, resamples, size):
        some = slice(start, min(start + size, resamples))
        yield some, _drawn(rng, some.stop - start, n_groups)


@lru_cache(maxsize=1)  # all comparisons on a corpus use the same draws
def group_draws(n_groups: int, resamples: int) -> NDArray[np.float32]:
    """The counts of each group of documents in each resample, (resamples, G)."""
    return _drawn(np.random.default_rng(SEED), resamples, n_groups)


def _drawn(rng: np.random.Generator, resamples: int, n_groups: int) -> NDArray[np.float32]:
    draws = np.zeros((resamples, n_groups), np.float32)
    for row in draws:
        row += np.bincount(rng.integers(n_groups, size=n_groups), minlength=n_groups)
    return draws


def p_mcnemar(
    correct: ArrayLike, baseline_correct: ArrayLike, groups: ArrayLike | None = None
) -> float:
    """McNemar's exact test of one seed's two models on the same documents, (D,) booleans each.

    It is the binomial test of the documents that exactly one of the two classifies correctly. With
    `groups` (D,) it is a sign-flip test of each group's gained minus lost documents. This test is
    exact too, and equal to McNemar's if no group has two of these documents.
    """
    a, b = np.asarray(correct, dtype=int), np.asarray(baseline_correct, dtype=int)
    group = np.unique(np.arange(len(a)) if groups is None else groups, return_inverse=True)[1]
    net = np.rint(np.bincount(group, a - b)).astype(int)
    sizes = np.abs(net[net != 0])
    if sizes.max(initial=1) == 1:
        gained = int(np.sum(net > 0))
        return float(stats.binomtest(gained, len(sizes)).pvalue) if len(sizes) else 1.0
    # The distribution of the sum of all signed sizes, from -sum(sizes) to sum(sizes).
    chances = np.ones(1)
    for size in sizes:
        either = np.zeros(2 * size + 1)
        either[[0, -1]] = 0.5
        chances = np.convolve(chances, either)
    sums = np.arange(len(chances)) - sizes.sum()
    return min(1.0, float(chances[np.abs(sums) >= abs(net.sum())].sum()))
