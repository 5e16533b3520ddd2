"""Error rates, power and coverage on simulated differences; tables of calibrate.py."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from posfuse.statistics import over_documents as over
from posfuse.statistics import paired as st
from posfuse.statistics.comparisons import Criteria
from posfuse.statistics.contrasts import EQUIVALENT
from posfuse.statistics.power import decision_power
from posfuse.statistics.sequential import Looks, Margins, judge_family
from posfuse.verdicts.claims import judge_claims, read_claims
from violations import DIFFERENT, rate, share_of

CRITERIA = Criteria()
# The paper's Figure 3, gate_scalar - add on ArXiv, in points: the published size and spread.
PUBLISHED_DELTAS = np.array([9.49, 2.56, 3.68, 7.84, 9.02])
DOCUMENTS = 425  # of the quickstart's test split, for the discrete noise
Noise = Callable[[np.random.Generator, Any], NDArray[Any]]


def _lognormal(rng: np.random.Generator, size: Any) -> NDArray[Any]:
    spread = np.exp(0.5) * np.sqrt(np.exp(1) - 1)  # of exp(a standard normal number)
    return (np.exp(rng.normal(size=size)) - np.exp(0.5)) / spread


def _solved(solved: NDArray[Any], rng: np.random.Generator, size: Any) -> NDArray[Any]:
    """Some runs solve the task; the others do not. A little noise is added to both."""
    return np.sqrt(0.95) * solved + np.sqrt(0.05) * rng.normal(size=size)


def _shared_split(rng: np.random.Generator, size: Any) -> NDArray[Any]:
    """30 % of the variance comes from one data split, which all seeds share. The last axis of
    `size` is that of the seeds."""
    size = (size,) if isinstance(size, int) else tuple(size)
    return np.sqrt(0.7) * rng.normal(size=size) + np.sqrt(0.3) * rng.normal(size=(*size[:-1], 1))


EACH: dict[str, Noise] = {  # of variance 1
    "normal": lambda rng, size: rng.normal(size=size),
    "heavy-tailed": lambda rng, size: rng.standard_t(3, size) / np.sqrt(3),
    "discrete": lambda rng, size: (
        (rng.binomial(DOCUMENTS, 0.8, size) / DOCUMENTS - 0.8) / np.sqrt(0.16 / DOCUMENTS)
    ),
    "both skewed": lambda rng, size: rng.exponential(size=size) - 1,
    "lognormal": _lognormal,
    "bimodal": lambda rng, size: _solved(2.0 * rng.integers(2, size=size) - 1, rng, size),
    "one in five": lambda rng, size: _solved((rng.random(size) < 0.2) / 0.4 - 0.5, rng, size),
    "shared split": _shared_split,
}


def _beside_steady(name: str, sign: float = 1.0) -> tuple[Noise, Noise]:
    """An operator with most of the noise beside a steady baseline."""
    return (
        lambda rng, size: sign * np.sqrt(1.8) * EACH[name](rng, size),
        lambda rng, size: np.sqrt(0.2) * EACH["normal"](rng, size),
    )


# Noise of an operator's accuracy and of the baseline's: together of variance 2.
NOISES: dict[str, tuple[Noise, Noise]] = {
    **{name: (EACH[name], EACH[name]) for name in [*EACH][:6]},
    "rarely solved": _beside_steady("one in five"),
    "shared split": (_shared_split, _shared_split),
    "collapsing": _beside_steady("both skewed", -1.0),
    "soaring": _beside_steady("both skewed"),
}
GRID = [
    *(("agnews", "sinusoidal", f) for f in ("concat", "gate_scalar")),
    *(("imdb", "sinusoidal", f) for f in ("concat", "gate_scalar")),
    *(("arxiv", "sinusoidal", f) for f in ("concat", "gate_scalar", "gate_cnn")),
    *(("arxiv", "learned", f) for f in ("concat", "gate_scalar")),
]
LENGTHS = {"agnews": 38.0, "imdb": 230.0, "arxiv": 4000.0}
# Which of the paper's claims are false when no fusion differs, and when all differ by the margin.
FALSE_AT_ZERO = {
    "gain_long", "every_seed_long", "every_encoding", "cnn_less_stable", "grows_with_length"
}  # fmt: skip
COUNTED = "every_seed_long"  # one counter-example refutes it, rightly
FALSE_AT_MARGIN = {"negligible_short", "negligible_medium", "cnn_less_stable", "grows_with_length"}
LOOKS = {looks: Looks(looks) for looks in ((8, 16, 24), (5, 10, 20))}


def sweep(
    rng: np.random.Generator, noise: str, n: int, std: float, effect: float, on_arxiv: float = 0.0
) -> pd.DataFrame:
    """The comparisons of one simulated sweep, in the form of `compare`: every fusion is `effect`
    points better than add, on ArXiv by `on_arxiv` more. Differences of one corpus and encoding
    share add's noise. The corpora count as one task at three lengths, and no placebo was run."""
    rows = []
    fused_noise, base_noise = NOISES[noise]
    baselines: dict[tuple[str, str], NDArray[Any]] = {}
    scale = std / np.sqrt(2)  # so that a difference has the standard deviation std
    for data, encoding, fusion in GRID:
        base = baselines.setdefault((data, encoding), scale * base_noise(rng, n))
        gain = effect + on_arxiv * (data == "arxiv")
        deltas = gain + scale * fused_noise(rng, n) - base
        rows.append((data, encoding, fusion, LENGTHS[data], list(range(n)), deltas.tolist(), n))
    columns = ["data", "encoding", "fusion", "length", "seeds", "deltas", "n"]
    frame = pd.DataFrame(rows, columns=columns)
    same = {"variant": "", "baseline_variant": "", "attention": "", "other_settings": ""}
    return frame.assign(table=frame["encoding"], task="one-0", resolution=np.nan, **same)


def false_claims(
    noise: str, n: int, std: float, effect: float, false: set[str], sweeps: int, seed: int
) -> dict[str, Any]:
    """Shares of sweeps that support a false claim, that refute a claim without a counter-example,
    and in which Holm's test finds a difference that does not exist (for effect = 0 only). One seed
    below 0 refutes "with every seed" rightly; every other refutation is false."""
    rng, claims = np.random.default_rng(seed), read_claims()
    supported = refuted = differs = 0
    for _ in range(sweeps):
        comparisons = sweep(rng, noise, n, std, effect)
        verdicts = judge_claims(claims, comparisons, CRITERIA)
        supported += any(v.verdict == "supported" and v.claim.name in false for v in verdicts)
        refuted += any(v.verdict == "refuted" and v.claim.name != COUNTED for v in verdicts)
        p = [st.p_paired_t(d) for d in comparisons["deltas"]]
        differs += bool((st.holm(p) <= CRITERIA.alpha).any())
    row = {"noise": noise, "seeds": n, "true difference": f"{effect:g}"}
    row["a false claim supported"] = rate(supported, sweeps)
    row["a claim refuted wrongly"] = rate(refuted, sweeps)
    row["a difference found (Holm)"] = rate(differs, sweeps) if effect == 0 else ""
    return row


def both_kinds(noise: str, n: int, sweeps: int, seed: int) -> dict[str, Any]:
    """Shares of sweeps of ten comparisons with a false conclusion: a difference for one of five
    whose true value is 0, or equivalence for one of five whose true value is the margin."""
    rng, (fused_noise, base_noise) = np.random.default_rng(seed), NOISES[noise]
    difference = equivalent = either = 0
    truth = np.repeat([0.0, CRITERIA.margin], 5)[:, None]
    for _ in range(sweeps):
        samples = truth + 0.2 * (fused_noise(rng, (10, n)) - base_noise(rng, (10, n)))
        differs = st.holm([st.p_paired_t(d) for d in samples]) <= CRITERIA.alpha
        small = st.holm([st.p_equivalence(d, CRITERIA.margin) for d in samples]) <= CRITERIA.alpha
        difference += bool(differs[:5].any())
        equivalent += bool(small[5:].any())
        either += bool(differs[:5].any() or small[5:].any())
    return {
        "noise": noise, "seeds": n, "a false difference": rate(difference, sweeps),
        "a false equivalence": rate(equivalent, sweeps), "either": rate(either, sweeps),
    }  # fmt: skip


def several_looks(noise: str, looks: Looks, simulated: int, seed: int) -> dict[str, Any]:
    """Shares of studies of one hypothesis with a false result at any look, and at the last alone: a
    difference where there is none, and equivalence where the difference is the margin."""
    rng, (fused_noise, base_noise) = np.random.default_rng(seed), NOISES[noise]
    size, margins = (simulated, looks.seeds[-1]), Margins(CRITERIA.margin)
    noises = 0.5 * (fused_noise(rng, size) - base_noise(rng, size))  # spread 0.7 points

    def falsely(plan: Looks) -> tuple[str, str]:
        return (
            share_of(DIFFERENT, noises, margins, plan),
            share_of((EQUIVALENT,), noises + CRITERIA.margin, margins, plan),
        )

    difference, equivalent = falsely(looks)
    once, equivalent_once = falsely(Looks(looks.seeds[-1:]))
    return {
        "noise": noise, "looks": ", ".join(map(str, looks.seeds)), "false difference": difference,
        "with one look": once, "false equivalence": equivalent,
        "equivalence, one look": equivalent_once,
    }  # fmt: skip


def family_looks(
    noise: str, looks: Looks, hypotheses: int, studies: int, seed: int
) -> dict[str, Any]:
    """Share of studies of a family without any true difference that find one, at any look."""
    rng, (fused_noise, base_noise) = np.random.default_rng(seed), NOISES[noise]
    names, size = range(hypotheses), (hypotheses, looks.seeds[-1])
    margins, false = {str(name): Margins(CRITERIA.margin) for name in names}, 0
    for _ in range(studies):
        noises = 0.5 * (fused_noise(rng, size) - base_noise(rng, size))
        samples = {str(name): noises[name] for name in names}
        found, _ = judge_family(samples, margins, looks)
        false += any(decision.result in DIFFERENT for decision in found.values())
    return {
        "noise": noise, "looks": ", ".join(map(str, looks.seeds)), "hypotheses": hypotheses,
        "any false difference": rate(false, studies),
    }  # fmt: skip


def coverage(noise: str, n: int, samples: int, seed: int) -> dict[str, Any]:
    """Shares of samples whose 95 % intervals contain the true mean difference."""
    rng = np.random.default_rng(seed)
    held = {"t": 0, "BCa": 0}
    fused_noise, base_noise = NOISES[noise]
    for _ in range(samples):
        d = fused_noise(rng, n) - base_noise(rng, n)
        for name, (low, high) in (("t", st.t_interval(d)), ("BCa", st.bootstrap_interval(d))):
            # Without spread there is no interval; it counts as one that misses the true value.
            held[name] += bool(low <= 0 <= high)
    row = {"noise": noise, "seeds": n}
    return row | {f"{name} interval": rate(hits, samples) for name, hits in held.items()}


def group_coverage(correlation: float, samples: int, seed: int) -> dict[str, Any]:
    """Shares of samples in which the hierarchical bootstrap, over groups of documents and over
    documents, contains the true difference, if documents of a group are correlated. The groups are
    as large as those of the quickstart."""
    rng, n, n_groups = np.random.default_rng(seed), 5, 425
    groups = np.sort(np.random.default_rng(1).integers(n_groups, size=600))
    held = {"over groups": 0, "over documents": 0}
    for _ in range(samples):
        shared, own = rng.normal(size=n_groups)[groups], rng.normal(size=len(groups))
        of_document = np.sqrt(correlation) * shared + np.sqrt(1 - correlation) * own
        of_seed = 10 * rng.normal(size=(n, len(groups))) + 0.3 * rng.normal(size=(n, 1))
        x = 40 * of_document + of_seed
        for name, drawn in zip(held, (groups, None), strict=True):
            low, high = over.hierarchical_bootstrap(x, groups=drawn)
            held[name] += bool(low <= 0 <= high)
    row = {"correlation in a group": correlation, "seeds": n, "documents": len(groups)}
    return row | {name: rate(hits, samples) for name, hits in held.items()}


def document_coverage(spread: float, n: int, samples: int, seed: int) -> dict[str, Any]:
    """Share of samples in which the hierarchical bootstrap contains the mean gain over all seeds
    and documents. The probability that a document is classified correctly depends on its own ease,
    the operator's gain on it, and the run, whose part has the given spread (in probits)."""
    rng = np.random.default_rng(seed)
    grid = np.random.default_rng(1).normal(size=(4, 400_000))
    ease, gain_here = 1 + grid[0], 0.3 + 0.3 * grid[1]
    truth = 100 * np.mean(
        stats.norm.cdf(ease + gain_here + spread * grid[2])
        - stats.norm.cdf(ease + spread * grid[3])
    )
    hits = 0
    for _ in range(samples):
        ease, gain = 1 + rng.normal(size=DOCUMENTS), 0.3 + 0.3 * rng.normal(size=DOCUMENTS)
        chance, base_chance = (
            stats.norm.cdf(level + spread * rng.normal(size=(n, 1)))
            for level in (ease + gain, ease)
        )
        right, base_right = (rng.random((n, DOCUMENTS)) < p for p in (chance, base_chance))
        low, high = over.hierarchical_bootstrap(100.0 * (right.astype(float) - base_right))
        hits += bool(low <= truth <= high)
    return {
        "spread of runs": spread, "seeds": n, "documents": DOCUMENTS,
        "hierarchical bootstrap": rate(hits, samples),
    }  # fmt: skip


def detection(effect: float, std: float, n: int, samples: int, seed: int) -> dict[str, Any]:
    """Share of samples in which the paired t-test finds a true effect, and its calculated power."""
    d = np.random.default_rng(seed).normal(effect, std, (samples, n))
    found = sum(st.p_paired_t(x) <= 0.05 for x in d)
    return {
        "true difference": f"{effect:.2f}", "standard deviation": f"{std:.2f}", "seeds": n,
        "found (paired t)": rate(found, samples),
        "power calculation": f"{decision_power(effect, std, n, 0.0):.3f}",
    }  # fmt: skip


def equivalence(std: float, n: int, samples: int, seed: int) -> dict[str, Any]:
    """Share of samples in which equivalence is declared for a true zero, its calculated power, and
    the share for a true difference of the margin, where it is an error."""
    rng, margin = np.random.default_rng(seed), CRITERIA.margin
    at_zero, at_margin = (
        sum(st.p_equivalence(x, margin) <= 0.05 for x in rng.normal(mean, std, (samples, n)))
        for mean in (0.0, margin)
    )
    return {
        "standard deviation": f"{std:g}", "seeds": n,
        "declared at zero": rate(at_zero, samples),
        "power calculation": f"{decision_power(0.0, std, n, margin, np.inf):.3f}",
        "declared at the margin (error)": rate(at_margin, samples),
    }  # fmt: skip


def verdict_power(n: int, sweeps: int, seed: int) -> dict[str, Any]:
    """Share of sweeps that support "gain on long texts" when the published effect is true there."""
    rng, claims = np.random.default_rng(seed), read_claims()
    mean, std = float(PUBLISHED_DELTAS.mean()), st.spread(PUBLISHED_DELTAS)
    supported = 0
    for _ in range(sweeps):
        comparisons = sweep(rng, "normal", n, std, 0.0, on_arxiv=mean)
        verdicts = judge_claims(claims, comparisons, CRITERIA)
        supported += next(v.verdict == "supported" for v in verdicts if v.claim.name == "gain_long")
    return {"seeds": n, '"gain on long" supported': rate(supported, sweeps)}
