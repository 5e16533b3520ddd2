"""Repeated tuning: each repeat tunes and tests every arm again, with its own seeds.

Tuning chooses settings from noisy results, so two tunings of one operator choose different
settings. A verdict about tuned operators must include this noise, so it compares the means of
repeats. The seeds of a repeat only make its mean more exact. A repeat is an ordinary study of the
same arms.
"""

from dataclasses import replace

import pandas as pd

from posfuse.study.spec import NULL_ARM, Study, Values

FAR = 1_000_000  # distance of the null arm's seeds from the seeds of the other arms


def parts_of(study: Study) -> dict[str, Study]:
    """The ordinary studies that form a study, by the part of their sweeps' names; without repeats
    the study itself, with the name "".

    Each repeat has its own trials and seeds, and one more part for its null arm. The null arm's
    seeds are FAR from the others, because runs with equal settings and seeds would be the same
    runs.
    """
    if study.repeats == 1:
        return {"": study}
    arms = {arm: own for arm, own in study.arms.items() if arm != NULL_ARM}
    parts = {}
    for i in range(study.repeats):
        parts[f"r{i + 1}"] = _part(study, arms, i, 0)
        if NULL_ARM in study.arms:
            null = {NULL_ARM: study.arms[NULL_ARM]}
            parts[f"r{i + 1}_null"] = _part(study, null, i, FAR)
    return parts


def _part(study: Study, arms: dict[str, Values], i: int, shift: int) -> Study:
    assert study.tuning is not None

    def own(seeds: list[int]) -> list[int]:
        n = len(seeds) // study.repeats
        return [seed + shift for seed in seeds[n * i : n * (i + 1)]]

    tuning = replace(
        study.tuning, repeats=1, null_arm="", draw=study.tuning.draw + i,
        seeds=own(study.tuning_seeds), final_seeds=own(study.final_seeds) or None,
    )  # fmt: skip
    seeds = own(study.test_seeds)
    testing = replace(study.testing, seeds=seeds, looks=[len(seeds)], spent=[])
    return replace(study, arms=arms, tuning=tuning, testing=testing)


def units_of(study: Study) -> list[int]:
    """The units of the tests in order: the test seeds, or the repeats, from 1."""
    return study.test_seeds if study.repeats == 1 else list(range(1, study.repeats + 1))


def unit_of(study: Study) -> dict[int, int]:
    """The unit of each test seed, in order; with repeats also of the null arm's."""
    if study.repeats == 1:
        return {seed: seed for seed in study.test_seeds}
    units = {seed: i // study.seeds_of_units + 1 for i, seed in enumerate(study.test_seeds)}
    if NULL_ARM in study.arms:
        units |= {seed + FAR: unit for seed, unit in units.items()}
    return units


def by_unit(study: Study, outcomes: pd.DataFrame) -> pd.DataFrame:
    """The outcomes with a row for each unit: of a repeat the mean over its seeds, NaN if one is
    missing."""
    if study.repeats == 1:
        return outcomes
    units = outcomes.groupby(outcomes.index.map(unit_of(study)))
    is_whole = units.count() == study.seeds_of_units
    return units.mean().where(is_whole).reindex(units_of(study))
