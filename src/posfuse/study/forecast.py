"""The cost and the power of a study, before anything runs."""

import itertools
import math
import shutil
from collections import Counter

from posfuse.config import PretrainConfig
from posfuse.errors import InputError
from posfuse.runs.records import Record
from posfuse.statistics.contrasts import AHEAD, ANSWERS, BEHIND, EQUIVALENT
from posfuse.statistics.sequential import chances
from posfuse.study.arm_sweep import ArmSweep
from posfuse.study.configurations import compose
from posfuse.study.spec import NULL_ARM, Study, Values

FEW, MORE = 5, 20  # batches of an epoch in the short runs, and further batches in the long runs
# Few steps may all lie in the warm-up, and runs of different lengths must not stop early.
SHORT = {"optim.warmup": 0, "trainer.patience": None}
TRAINED = 3  # a training step's forward and backward pass, in forward passes


def numbers_of_runs(study: Study) -> tuple[int, int, int]:
    """The number of tuning runs, and the smallest and largest number of test runs."""
    finalists = study.tuning.finalists if study.tuning else 0
    of_arm = len(study.trials()) * len(study.tuning_seeds) + finalists * len(study.final_seeds)
    needed = {arm for h in study.hypotheses for arm in h.weights}
    in_unit, looks = len(needed) * study.seeds_of_units, study.looks.seeds
    return len(study.arms) * of_arm, in_unit * looks[0], in_unit * looks[-1]


def cpu_seconds_per_run(name: str, study: Study, extra: list[str]) -> float:
    """The mean time of a run over the arms times its threads, from two short runs of each arm, with
    few batches in each epoch and split.

    The short runs do not stop early, so a run with trainer.patience may take less. Runs of an
    earlier command are removed, because the study or the machine may have changed.
    Raises InputError if no arm could be timed.
    """
    first = next(iter(study.trials().values()), {})
    own_arms = {arm: {**own, **first} for arm, own in study.arms.items() if arm != NULL_ARM}
    whole = {arm: own.config.trainer for arm, own in compose(study, own_arms, extra).items()}
    few = max(FEW, *(own.evaluations for own in whole.values()))
    sizes = (few, few + MORE)
    timed: dict[str, Values] = {}
    alike = {}  # the arm that is timed in place of an arm with the same short runs
    for arm, values in own_arms.items():
        own = {**values, **SHORT, "trainer.limit_batches": 0}
        alike[arm] = next((other for other in timed if timed[other] == own), arm)
        timed[alike[arm]] = own
    arms = {
        f"{arm}.{n}": {**own, "trainer.limit_batches": n}
        for arm, own in timed.items()
        for n in sizes
    }
    configs = {arm: own.fingerprint for arm, own in compose(study, arms, extra).items()}
    sweep = ArmSweep(study, name, "timing", arms, configs)
    shutil.rmtree(sweep.folder, ignore_errors=True)
    seed = next(n for n in itertools.count() if n not in study.test_seeds)
    others = [override for override in extra if not override.startswith("logger=")]
    sweep.run(arms, [seed], ["logger=none", *others])
    results = sweep.results(arms, [seed])
    times: list[float] = []
    for arm in own_arms:
        short, long = (results.get((f"{alike[arm]}.{n}", seed)) for n in sizes)
        if short is not None and long is not None:
            seconds = whole_seconds(short, long, sizes, whole[arm].limit_batches)
            times.append(seconds * long["host"]["threads"])
    if not times:
        raise InputError(f"{sweep.folder}: no arm could be timed; see the errors above")
    return sum(times) / len(times)


def whole_seconds(
    short: Record, long: Record, sizes: tuple[int, int], limit: int | None = None
) -> float:
    """The seconds of a run and of its pretraining, from two short runs.

    `sizes` are the limits on the batches of each epoch and split in the two runs; `limit` is that
    of the whole run. Time grows with the documents, and training on a document takes as long as
    evaluating TRAINED documents.
    """
    settings, documents = long["settings"], long["documents"]

    def with_all(before: float, after: float, *reads: tuple[str, int, int]) -> float:
        """The seconds of a phase that reads these splits, each with its batch size and weight."""
        fewer, more, every = (
            sum(weight * min(n * size, documents[split]) for split, size, weight in reads)
            for n in (*sizes, limit or math.inf)
        )
        rest: float = max(after - before, 0.0) * (every - more) / max(more - fewer, 1)
        return after + rest

    size, of_evaluation = settings["data.batch_size"], settings["data.eval_batch_size"]
    evaluated = "validation", of_evaluation, int(settings["trainer.evaluations"])
    before, after = short["seconds"], long["seconds"]
    seconds = float(after.get("setup", 0.0))
    seconds += with_all(before["fit"], after["fit"], ("train", size, TRAINED), evaluated)
    seconds += with_all(before["test"], after["test"], ("test", of_evaluation, 1))
    if "pretrain" in long:
        size = settings.get("pretrain.batch_size", PretrainConfig().batch_size)
        both = short["pretrain"]["seconds"], long["pretrain"]["seconds"]
        seconds += with_all(*both, ("train", size, 1))
    return seconds


def forecast(study: Study, seconds: float | None) -> list[str]:
    """Lines with the number of runs, their core hours if a run was timed, and the power."""

    def size(runs: int) -> str:
        if seconds is None:
            return f"{runs} runs"
        return f"{runs} runs, about {runs * seconds / 3600:.2g} core hours"

    (tuning, least, most), lines = numbers_of_runs(study), []
    if study.tuning:
        n, finals = study.repeats, len(study.final_seeds) // study.repeats
        each = f"{len(study.trials())} trials x {len(study.tuning_seeds) // n} seeds"
        if finals:
            each = f"({each} + {study.tuning.finalists} finalists x {finals} seeds)"
        repeats = f"{n} repeats x " * (n > 1)
        lines.append(f"tuning: {repeats}{len(study.arms)} arms x {each} = {size(tuning)}")
    if least == most:
        lines.append(f"testing: {size(least)}")
    else:
        lines += [f"testing: at least {size(least)}", f"         at most {size(most)}"]
    return lines + _power(study)


def _power(study: Study) -> list[str]:
    looks, assumed = study.looks, study.assumed
    of_repeats = f" and by {assumed.between:g} over repeats of tuning" if study.repeats > 1 else ""
    own = " (or as a hypothesis's own `assumed` says)" * any(h.assumed for h in study.hypotheses)
    lines = [
        "power at the strictest level of Holm's rule, lower if differences spread more:",
        f"  assumed: a difference of two arms spreads by {assumed.spread:g} {study.measured.unit} "
        f"over seeds{of_repeats}{own}, and the noise of arms is independent",
    ]
    simulated = min(10_000, 10**7 // looks.seeds[-1])  # 80 MB of draws
    for family, hypotheses in study.families.items():
        groups = Counter(
            (h.expects, h.margins, study.assumed_for(h).difference, study.expected_spread(h))
            for h in hypotheses
        )
        for (expects, margins, difference, spread), n in groups.items():
            of_margin = f"margin ±{margins.equivalence:g}, spread {spread:.3g}"
            lines.append(f"  {family}: {n} x {expects}, {of_margin}")
            expected = (-difference, BEHIND) if expects == "less" else (difference, AHEAD)
            for true, result in (expected, (0.0, EQUIVALENT)):
                verdict = ANSWERS[expects][result]
                rows = chances(true, spread, margins, looks, len(hypotheses), simulated)
                by_look = zip(rows, looks.seeds, strict=True)
                shares = ", ".join(f"{100 * row[result]:.0f} % by {n}" for row, n in by_look)
                lines.append(f"    true difference {true:g}: {verdict} in {shares} {study.units}")
    shown = ", ".join(map(str, looks.seeds))
    return [*lines, f"looks: {shown} {study.units}; alpha = {looks.alpha:g} per family"]
