"""Tests of two arms whose runs either solve a task or do not; tables of calibrate.py.

A false difference or equivalence is one in what the procedure is about: the mean of all runs, the
share of solved runs, or the mean of the runs that both arms solve.
"""

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, stats

from posfuse.statistics import shares
from posfuse.statistics.power import decision_power
from posfuse.statistics.sequential import Looks
from violations import rate

Array = NDArray[np.float64]
# Studies (N, seeds) of two arms a and b -> p of a - b <= threshold and of a - b >= threshold.
Procedure = Callable[[Array, Array, float], tuple[Array, Array]]
DESIGNS = (Looks((8,)), Looks((16,)), Looks((24,)), Looks((8, 16, 24)))
FAMILY = 6  # hypotheses
MARGIN = 30.0  # points; with 20 no 24 seeds could show equivalence in a family of 6
SOLVED = 90.0  # in %
SHARES = (0.05, 0.1, 0.2, 0.5, 0.8, 0.9, 0.95)  # of solved runs
USUAL = (1.0, 3.0)  # the spreads of solved and of failing runs
SHAPES = {"both": USUAL, "both, other spreads": (0.2, 12.0), "one arm": None}  # of the other arm
FLIPS, SWAPS = 2_000, 1_000  # random signs and permutations, the observed ones included


def runs(rng: Any, share: float, size: Any, spreads: tuple[float, float] = USUAL) -> Array:
    """Accuracies in %: around 97 in a share of the runs, around 30 in the others."""
    high, low = (spread * rng.normal(size=size) for spread in spreads)
    return np.where(rng.random(size) < share, 97 + high, 30 + low)


def by_t(a: Array, b: Array, threshold: float, used: Any = True) -> tuple[Array, Array]:
    d, n = a - b - threshold, np.broadcast_to(used, a.shape).sum(1)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = np.sum(d, axis=1, where=used) / n
        error = np.sqrt(np.sum((d - mean[:, None]) ** 2, axis=1, where=used) / (n - 1) / n)
        sides = stats.t.sf(mean / error, n - 1), stats.t.cdf(mean / error, n - 1)
    return np.nan_to_num(sides[0], nan=1.0), np.nan_to_num(sides[1], nan=1.0)


def if_both_solve(a: Array, b: Array, threshold: float) -> tuple[Array, Array]:
    return by_t(a, b, threshold, (a >= SOLVED) & (b >= SOLVED))


def _ranked(values: Array) -> tuple[Array, Array]:
    """The shares of values (N, R) that are as high, and as low, as the first one."""
    seen, tie = values[:, :1], 1e-9 * np.abs(values[:, :1])
    return (~(values < seen - tie)).mean(1), (~(values > seen + tie)).mean(1)


@cache
def _signs(n: int) -> Array:
    """(R, n): all signs of up to 10 seeds, otherwise random ones; the first row is the observed."""
    if n <= 10:
        return np.asarray(1.0 - 2 * (np.arange(2**n)[:, None] >> np.arange(n) & 1))
    return np.vstack([np.ones(n), np.random.default_rng(0).choice([-1.0, 1.0], (FLIPS - 1, n))])


def by_signs(a: Array, b: Array, threshold: float) -> tuple[Array, Array]:
    """Studentised or not: no sign changes a square, so both statistics have the same ranks."""
    return _ranked((a - b - threshold) @ _signs(a.shape[1]).T)


def by_permutation(a: Array, b: Array, threshold: float) -> tuple[Array, Array]:
    """Welch's statistic over permutations of the runs of both arms (Janssen 1997)."""
    n, rng = a.shape[1], np.random.default_rng(0)
    first = np.tile(np.repeat([1.0, 0.0], n), (SWAPS, 1))
    first[1:] = rng.permuted(first[1:], axis=1)
    x = np.hstack([a - threshold, b])
    x -= x.mean(1, keepdims=True)
    total, squares = x @ first.T, (x**2).sum(1, keepdims=True)  # of all runs the total is 0
    with np.errstate(divide="ignore", invalid="ignore"):
        return _ranked(total / np.sqrt(np.maximum(squares - 2 * total**2 / n, 0)))


def by_betting(a: Array, b: Array, threshold: float) -> tuple[Array, Array]:
    """The largest capital of predictable plug-in bets on either side, which no number of looks
    makes invalid (Waudby-Smith & Ramdas 2024, section 4)."""

    def p_above(d: Array, limit: float) -> Array:
        x, m, count = (d / 100 + 1) / 2, (limit / 100 + 1) / 2, np.arange(1, d.shape[1] + 1)
        mean = (0.5 + x.cumsum(1)) / (count + 1)
        variance = (0.25 + ((x - mean) ** 2).cumsum(1)) / (count + 1)
        before = np.hstack([np.full((len(x), 1), 0.25), variance[:, :-1]])
        bets = np.minimum(np.sqrt(2 * np.log(2 / 0.05) / (len(count) * before)), 0.75 / m)
        return np.asarray(1 / np.maximum(np.cumprod(1 + bets * (x - m), axis=1).max(1), 1))

    return p_above(a - b, threshold), p_above(b - a, -threshold)


def by_shares(a: Array, b: Array, threshold: float) -> tuple[Array, Array]:
    """As `decide_at` tests the share of solved runs."""
    d = 100.0 * ((a >= SOLVED) * 1 - (b >= SOLVED))
    different, places = np.unique(np.sort(d, axis=1), axis=0, return_inverse=True)
    sides = ([p(row, threshold) for row in different] for p in (shares.p_above, shares.p_below))
    above, below = (np.array(side)[places.ravel()] for side in sides)
    return above, below


OF_MEANS: dict[str, Procedure] = {
    "t": by_t, "sign flips": by_signs, "studentised permutation": by_permutation,
    "betting": by_betting,
}  # fmt: skip
PROCEDURES = OF_MEANS | {"share of solved runs": by_shares, "t where both solve": if_both_solve}


def hits(
    name: str, a: Array, b: Array, margin: float = 0.0, family: int = FAMILY,
    designs: tuple[Looks, ...] = DESIGNS,
) -> int:  # fmt: skip
    """How many families of studies (N, seeds) show any difference at any look, or with a margin
    any equivalence; of the designs the one with the most."""
    p, test, most = {}, PROCEDURES[name], 0
    for n in {n for looks in designs for n in looks.seeds}:
        above, below = test(a[:, :n], b[:, :n], -margin)
        if margin:
            p[n] = np.maximum(above, test(a[:, :n], b[:, :n], margin)[1])
        else:
            p[n] = 2 * np.minimum(above, below)
    for looks in designs:
        each = looks.alpha / family
        levels = dict.fromkeys(looks.seeds, each)
        if name != "betting":
            sides = 1 if margin else 2
            levels = {n: sides * looks.level(i, each / sides) for i, n in enumerate(looks.seeds)}
        shown = np.any([p[n] <= level for n, level in levels.items()], axis=0)
        most = max(most, int(shown.reshape(-1, family).any(1).sum()))
    return most


def false_results(
    shape: str, share: float, margin: float, families: int, seed: int
) -> dict[str, str]:
    """Differences between equal arms, or with a margin equivalence of arms that differ by it."""
    rng, size = np.random.default_rng(seed), (families * FAMILY, DESIGNS[-1].seeds[-1])
    spreads, mean = SHAPES[shape], 97 * share + 30 * (1 - share)
    draw = partial(runs, rng, size=size, spreads=spreads) if spreads else None
    a = runs(rng, share, size)
    b = draw(share) if draw else mean + rng.normal(size=size)
    row = {"runs solve in": shape, "share": f"{100 * share:g} %"}
    for name in PROCEDURES:
        if name in OF_MEANS:
            most = max(hits(name, a + shift, b, margin) for shift in {margin, -margin})
        elif not draw:
            row[name] = "-"
            continue
        elif name == "t where both solve":
            most = hits(name, a + margin / 60, b, margin / 60)  # half a point
        else:
            other = share + (margin if share <= 0.5 else -margin) / 100
            most = hits(name, a, draw(other) if margin else b, margin)
        row[name] = rate(most, families)
    return row


CASES: dict[str, Callable[..., tuple[Array, Array]]] = {
    "normal noise": lambda rng, size, gap: (
        SOLVED + 5 * (gap + rng.normal(size=size)), SOLVED + 5 * (rng.normal(size=size) - gap)
    ),
    "20 and 80 % solve": lambda rng, size, _: (runs(rng, 0.2, size), runs(rng, 0.8, size)),
    "50 and 95 % solve": lambda rng, size, _: (runs(rng, 0.5, size), runs(rng, 0.95, size)),
    "97.5 always; 100, but 30 in 5 %": lambda rng, size, _: (
        97.5 + 0.2 * rng.normal(size=size), 3 + runs(rng, 0.95, size, (0.2, 3.0))
    ),
}  # fmt: skip


def found(case: str, n: int, simulated: int, seed: int) -> dict[str, str]:
    """Shares of studies of one hypothesis and one look that find a difference. With normal noise t
    finds 80 %, and runs count as solved from the middle of both arms."""
    effect = optimize.brentq(lambda e: decision_power(e, 1.0, n, 0.0) - 0.8, 0.1, 5.0)
    a, b = CASES[case](np.random.default_rng(seed), (simulated, n), effect / np.sqrt(2))
    row = {"runs": case, "seeds": f"{n}"}
    number = partial(hits, a=a, b=b, family=1, designs=(Looks((n,)),))
    return row | {name: rate(number(name), simulated) for name in PROCEDURES}
