"""Error rates of a study where an assumption of its tests does not hold; tables of calibrate.py.

Two arms have the same true mean and independent noise. A rate is the share of studies that find a
difference.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from posfuse.statistics.contrasts import AHEAD, BEHIND
from posfuse.statistics.sequential import Looks, Margins, judge_family, shares_of_results

SEEDS = (5, 8, 16, 24)
LOOKS = Looks((8, 16, 24))
DIFFERENT = (AHEAD, BEHIND)
MARGIN = 0.5  # in standard deviations of the differences
FINDINGS = Path(__file__).resolve().parents[1] / "docs" / "findings"
LEARNS = 30.0  # validation accuracy in %; guessing has 20 in both studies of TUNINGS


def rate(hits: int, trials: int) -> str:
    """A share with its 95 % Clopper-Pearson interval."""
    interval = stats.binomtest(int(hits), trials).proportion_ci()
    return f"{hits / trials:.3f} [{interval.low:.3f}, {interval.high:.3f}]"


def share_of(
    results: tuple[str, ...], samples: NDArray[Any], margins: Margins, looks: Looks
) -> str:
    """The share of samples (N, seeds) with one of these results at any look."""
    last = shares_of_results(samples, margins, looks)[-1]
    return rate(round(sum(last[result] for result in results) * len(samples)), len(samples))


def false_differences(samples: NDArray[Any]) -> dict[str, str]:
    """The share of samples (N, 24) that find a difference, with one look at so many seeds and with
    all looks."""
    margins = Margins(MARGIN * float(samples.std()))
    plans = {f"{n} seeds": Looks((n,)) for n in SEEDS} | {"looks at 8, 16, 24": LOOKS}
    return {name: share_of(DIFFERENT, samples, margins, looks) for name, looks in plans.items()}


def failing_runs(share: float, gap: float, simulated: int, seed: int) -> dict[str, Any]:
    """One arm fails in a share of its runs, which end `gap` standard deviations of a usual run
    lower; the other arm never fails, and its mean is the same."""
    rng, size = np.random.default_rng(seed), (simulated, LOOKS.seeds[-1])
    fails = rng.random(size) < share
    differences = rng.normal(size=size) - (fails - share) * gap / np.sqrt(2)
    row = {"failing runs": f"{100 * share:g} %", "gap": f"{gap:g}"}
    return row | false_differences(differences)


def shared_deviation(share: float, simulated: int, studies: int, seed: int) -> dict[str, Any]:
    """A share of the variance of the differences is the same deviation in every seed. The last
    column has families of six hypotheses, each with its own deviation."""
    rng = np.random.default_rng(seed)

    def differences(*size: int) -> NDArray[Any]:
        own = rng.normal(size=(*size, LOOKS.seeds[-1]))
        return np.sqrt(1 - share) * own + np.sqrt(share) * rng.normal(size=(*size, 1))

    row = {"shared variance": f"{100 * share:g} %"} | false_differences(differences(simulated))
    names, false = [str(i) for i in range(6)], 0
    margins = dict.fromkeys(names, Margins(MARGIN))
    for samples in differences(studies, len(names)):
        found, _ = judge_family(dict(zip(names, samples, strict=True)), margins, LOOKS)
        false += any(decision.result in DIFFERENT for decision in found.values())
    return row | {"any of 6, all looks": rate(false, studies)}


# Trials of a study's tuning, those that run again, and their further seeds.
TUNINGS = {"own_best": (14, 3, 4), "operator_or_scale": (20, 1, 0)}


def measured(study: str) -> tuple[int, float, float, float]:
    """From a study's records: the trials of an arm that learn; the standard deviation over trials
    of their true means and over seeds of their runs; and that of test runs over seeds.

    The first two deviations are those of the finalists of own_best, the only trials with several
    seeds, by an analysis of variance within each arm.
    """
    runs = pd.read_csv(FINDINGS / study / "runs.csv")
    tuning = runs[(runs["stage"] == "tuning") & ~runs["diverged"]]
    first = tuning[tuning["seed"] == tuning["seed"].min()]
    learn = (first["validation_accuracy"] > LEARNS).groupby(first["arm"]).sum().mean()
    tests = runs[runs["stage"] == "testing"].groupby("arm")["test_accuracy"].var()
    others = pd.read_csv(FINDINGS / "own_best" / "runs.csv").query("stage == 'tuning'")
    again = others[others["seed"] > others["seed"].min()]
    trials = again.groupby(["arm", "trial"])["validation_accuracy"].agg(["mean", "var", "count"])
    within = trials["var"].mean()
    between = trials["mean"].groupby("arm").var().mean() - (within / trials["count"]).mean()
    return round(learn), float(between) ** 0.5, float(within) ** 0.5, float(tests.mean()) ** 0.5


def of_tuning(study: str, factor: float, simulated: int, rng: Any) -> NDArray[Any]:
    """The true differences of two identical operators, each tuned once as in the study. The true
    means of their trials are the same, and spread by `factor` of what was measured."""
    trials, over_trials, over_seeds, _ = measured(study)
    _, finalists, final_seeds = TUNINGS[study]
    means = factor * over_trials * rng.normal(size=(simulated, trials))
    chosen = []
    for _ in range(2):
        scores = means + over_seeds * rng.normal(size=means.shape)
        best = np.argsort(-scores, axis=1)[:, :finalists]
        final = np.take_along_axis(means, best, axis=1)
        if final_seeds:
            noise = rng.normal(size=final.shape) * over_seeds / np.sqrt(final_seeds)
            final = final[np.arange(simulated), (final + noise).argmax(axis=1), None]
        chosen.append(final)
    return np.subtract(*chosen)


def tuned_once(study: str, factor: float, simulated: int, seed: int) -> dict[str, Any]:
    """Two identical operators, each tuned once."""
    rng = np.random.default_rng(seed)
    _, over_trials, _, of_tests = measured(study)
    differences = of_tuning(study, factor, simulated, rng)
    noise = np.sqrt(2) * of_tests * rng.normal(size=(simulated, LOOKS.seeds[-1]))
    row = {
        "tuning": study, "spread of trials": f"{factor * over_trials:.1f}",
        "spread of the true difference": f"{differences.std():.1f}",
    }  # fmt: skip
    return row | false_differences(differences + noise)


def tuned_repeatedly(
    study: str, repeats: int, seeds: int, simulated: int, seed: int
) -> dict[str, Any]:
    """The same with repeated tuning: the test counts repeats, each with so many test seeds."""
    rng = np.random.default_rng(seed)
    of_tests = np.sqrt(2 / seeds) * measured(study)[3]
    differences = of_tuning(study, 1.0, simulated * repeats, rng).reshape(simulated, repeats)
    means = differences + of_tests * rng.normal(size=differences.shape)
    margins = Margins(MARGIN * float(means.std()))
    row = {"tuning": study, "repeats": f"{repeats}", "test seeds in each": f"{seeds}"}
    return row | {"a false difference": share_of(DIFFERENT, means, margins, Looks((repeats,)))}
