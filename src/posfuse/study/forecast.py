"""What a study will cost and what it can decide, before anything runs."""

import math
from dataclasses import replace

from posfuse.analysis.statistics.sequential import AHEAD, EQUIVALENT, Margins, chances
from posfuse.errors import InputError
from posfuse.study.spec import Study, seeds_of
from posfuse.study.sweeps import Sweep

BATCHES = 10  # training batches of an epoch in the timing runs


def numbers_of_runs(study: Study) -> tuple[int, int, int]:
    """The tuning runs, and the fewest and the most test runs."""
    tuning = 0
    if study.tuning:
        seeds = seeds_of("tuning.seeds", study.tuning.seeds)
        tuning = len(study.arms) * len(study.trials()) * len(seeds)
    needed = {arm for h in study.hypotheses for arm in h.arms}
    looks = study.looks.seeds
    return tuning, len(needed) * looks[0], len(needed) * looks[-1]


def seconds_per_run(name: str, study: Study, extra: list[str]) -> float:
    """The mean time of a run over the arms, from one short run of each arm.

    A short run has BATCHES batches in each epoch and split. Its time is scaled to all batches, so
    a run that stops early takes less.
    """
    first = next(iter(study.trials().values()), {})
    arms = {arm: {**values, **first} for arm, values in study.arms.items()}
    settings = {**study.settings, "trainer.limit_batches": BATCHES}
    sweep = Sweep(replace(study, settings=settings), name, "timing", arms)
    seed = max(seeds_of("testing.seeds", study.testing.seeds)) + 1  # not a test seed
    sweep.run(arms, [seed], ["logger=none", *extra])
    found: list[float] = []
    for record in sweep.results(arms, [seed]).values():
        if record is not None:
            sizes, seconds, documents = record["settings"], record["seconds"], record["documents"]
            batches = math.ceil(documents["train"] / sizes["data.batch_size"])
            testing = math.ceil(documents["test"] / sizes["data.eval_batch_size"])
            scaled = seconds["fit"] * max(1.0, batches / BATCHES)
            found.append(scaled + seconds["test"] * max(1.0, testing / BATCHES))
    if not found:
        raise InputError(f"{sweep.folder}: no arm could be timed; see above")
    return sum(found) / len(found)


def forecast(study: Study, seconds: float | None) -> list[str]:
    """Lines with the number of runs, their time if it was measured, and the power."""

    def hours(runs: int) -> str:
        if seconds is None:
            return ""
        minutes = runs * seconds / 60
        shown = f"{minutes / 60:.1f} hours" if minutes >= 90 else f"{minutes:.0f} minutes"
        return f", about {shown} one after another"

    tuning, least, most = numbers_of_runs(study)
    lines = []
    if study.tuning:
        seeds = seeds_of("tuning.seeds", study.tuning.seeds)
        grid = f"{len(study.arms)} arms x {len(study.trials())} trials x {len(seeds)} seeds"
        lines.append(f"tuning: {grid} = {tuning} runs{hours(tuning)}")
    looks, assumed = study.looks, study.assumed
    lines.append(f"testing: at least {least} runs{hours(least)}")
    lines.append(f"         at most {most} runs{hours(most)}")
    lines.append(
        f"power: for normal differences with an assumed spread of {assumed.spread:g} points, at "
        "the strictest level of Holm's rule"
    )
    for family, hypotheses in study.families.items():
        for margins in dict.fromkeys(h.margins for h in hypotheses):
            also = f", differences count beyond ±{margins.beyond:g}" if margins.beyond else ""
            lines.append(f"  {family}, margin ±{margins.equivalence:g}{also}:")
            lines += _power(assumed.difference, study, margins, len(hypotheses), AHEAD)
            lines += _power(0.0, study, margins, len(hypotheses), EQUIVALENT)
    shown = ", ".join(map(str, looks.seeds))
    return [*lines, f"  looks: {shown} seeds; alpha = {looks.alpha:g} per family"]


def _power(
    difference: float, study: Study, margins: Margins, hypotheses: int, result: str
) -> list[str]:
    rows = chances(difference, study.assumed.spread, margins, study.looks, hypotheses)
    name = AHEAD if difference > 0 else "behind"
    wanted = result if result == EQUIVALENT else name
    shares = ", ".join(
        f"{100 * row[wanted]:.0f} % by {n} seeds"
        for row, n in zip(rows, study.looks.seeds, strict=True)
    )
    return [f"    true difference {difference:+g}: decided as {wanted} {shares}"]
