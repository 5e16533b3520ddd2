"""Compares another study's results by seed, paired or as independent samples.

All comparisons are computed at once, as arrays: a table may have 100,000 groups or 300 methods.
"""

from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from posfuse.errors import InputError
from posfuse.evidence.metric import decimals
from posfuse.statistics.comparisons import Criteria, decide_all
from posfuse.statistics.contrasts import AHEAD, BEHIND, EQUIVALENT, UNDECIDED

MOST_COMPARISONS = 1_000_000
AT_A_TIME = 100_000  # comparisons, to bound the memory
FEW = "there are fewer than two {}, or the values or differences are all equal"


def over_groups(table: pd.DataFrame, is_seed: bool) -> tuple[pd.DataFrame, list[str]]:
    """The means over all groups, with the column unit of `read_foreign` in place of the seed.

    A value is the mean over the groups of a unit of their means over seeds. If the unit is the
    seed, it is the mean over all groups with this seed. A unit that lacks a group is left out for
    this name, and each name with such units gives a line.
    """
    cells = table.groupby(["name", "unit", "group"], sort=False)["value"].mean().reset_index()
    means = cells.groupby(["name", "unit"], sort=False)["value"].agg(["mean", "size"])
    # Means of the same values can differ in their last digits, which is no spread.
    largest = table["value"].abs().groupby([table["name"], table["unit"]]).max()
    scale = 10.0 ** (12 - np.ceil(np.log10(largest.clip(lower=1e-290))))
    means["mean"] = (means["mean"] * scale).round() / scale
    n_groups = table["group"].nunique()
    if is_seed:  # a name need not have all seeds
        means = means.reset_index().assign(needed=n_groups)
    else:
        every = pd.MultiIndex.from_product([table["name"].unique(), table["unit"].unique()])
        means = means.reindex(every.set_names(means.index.names)).reset_index()
        means["size"] = means["size"].fillna(0).astype(int)
        means["needed"] = means["unit"].map(table.groupby("unit")["group"].nunique())
    whole, units = means["size"] == means["needed"], means["name"].value_counts()
    notes = []
    for name, part in means[~whole].groupby("name", sort=False):
        first = part.iloc[0]
        notes.append(
            f"{name}: {len(part)} of {units[name]} are left out, because they lack a group: "
            f"{first['unit']} has {first['size']} of {first['needed']}"
        )
    means = means[whole].rename(columns={"unit": "seed", "mean": "value"})
    return means[["name", "seed", "value"]].assign(group=f"mean over {n_groups} groups"), notes


def compare_foreign(
    table: pd.DataFrame,
    criteria: Criteria,
    paired: bool = True,
    all_pairs: bool = False,
    resolution: float = np.nan,
    units: str = "seeds",
) -> tuple[pd.DataFrame, list[str]]:
    """One row for each comparison within a group of `read_foreign`, and a line for each that is
    left out.

    Names are compared with `criteria.baseline`, or all with each other. `resolution` is that of
    paired.py; independent runs have none. `units` is the name of the unit in column `seed`.
    Columns: group, name, than, n (pairs, or runs of each side as text), mean (name minus than),
    low, high, p_t, p_equivalence, p_holm, p_equivalence_holm (over all rows) and verdict. Raises
    InputError for more than MOST_COMPARISONS.
    """
    rows, arms = _arms(table, criteria)
    others = arms if all_pairs else arms[arms["name"] == criteria.baseline]
    one, other = _pairs(arms, others, all_pairs)
    without = arms.loc[~arms["g"].isin(others["g"]), "group"].unique()
    why = f"not compared, because it has no row of {criteria.baseline}"
    notes = [f"{group}: {why}" for group in without]
    groups, names = arms["group"].to_numpy(), arms["name"].to_numpy()
    frame = pd.DataFrame({"group": groups[one], "name": names[one], "than": names[other]})
    if paired:
        estimates = _paired_estimates(rows, one, other, resolution)
    else:
        estimates = _welch_estimates(arms, one, other)
    frame = pd.concat([frame, estimates], axis=1)
    is_alone = frame["n"] == ""
    notes += _notes(frame[is_alone], f"not compared, because they have no {units} in common")
    if paired:
        sizes = arms["size"].to_numpy()
        fewer = frame["n"].replace("", "0").astype(int) < np.maximum(sizes[one], sizes[other])
        why = f"only one of them has some {units}, which are left out"
        notes += _notes(frame[fewer & ~is_alone], why)
    frame = _tests(frame[~is_alone].reset_index(drop=True), criteria.margin)
    notes += _notes(frame[frame["p_t"].isna()], f"no test, because {FEW.format(units)}")
    return decide_all(frame, pd.Series(True, frame.index), criteria), notes


def _notes(comparisons: pd.DataFrame, why: str) -> list[str]:
    return [f"{row.group}: {row.name} and {row.than}: {why}" for row in comparisons.itertuples()]


def _arms(table: pd.DataFrame, criteria: Criteria) -> tuple[pd.DataFrame, pd.DataFrame]:
    """arm, seed and value of each row; and a row for each arm (a name in a group): g (the group's
    number), group, name, n, mean and error (squared, of the mean).

    Arms are in the order of the groups, and in a group from the best to the worst.
    """
    rows = table.assign(g=pd.factorize(table["group"])[0])
    keys = ["g", "group", "name"]
    arms = rows.groupby(keys)["value"].agg(["size", "mean", "var", "min", "max"]).reset_index()
    ascending = [True, criteria.metric.lower_is_better]
    arms = arms.sort_values(["g", "mean"], ascending=ascending, kind="stable", ignore_index=True)
    rounding = 4e-11 * arms[["min", "max"]].abs().max(axis=1)
    is_spread = arms["max"] - arms["min"] > rounding
    arms["error"] = (arms["var"] / arms["size"]).where(is_spread, 0.0)
    numbers = arms[["g", "name"]].assign(arm=arms.index)
    rows = rows[["g", "name", "seed", "value"]].merge(numbers, on=["g", "name"])
    rows["seed"] = pd.factorize(rows["seed"])[0]
    return rows[["arm", "seed", "value"]], arms


def _pairs(
    arms: pd.DataFrame, others: pd.DataFrame, all_pairs: bool
) -> tuple[NDArray[Any], NDArray[Any]]:
    """The numbers of the two arms of each comparison: of each arm and each of `others` in its
    group; with `all_pairs` each pair once, with the better arm first."""
    if all_pairs:
        sizes = arms["g"].value_counts()
        if (n := int((sizes * (sizes - 1)).sum()) // 2) > MOST_COMPARISONS:
            raise InputError(
                f"--all-pairs: makes {n:,} comparisons, above the limit of {MOST_COMPARISONS:,}; "
                "compare fewer with --where, or with one --baseline"
            )
    both = arms[["g"]].reset_index().merge(others[["g"]].reset_index(), on="g")
    one, other = both[["index_x", "index_y"]].to_numpy().T
    is_pair = one < other if all_pairs else one != other
    return one[is_pair], other[is_pair]


def _paired_estimates(
    rows: pd.DataFrame, one: NDArray[Any], other: NDArray[Any], resolution: float
) -> pd.DataFrame:
    """n, mean, error (of the mean) and df of the differences of each pair of arms.

    As in paired.py, differences that are equal up to rounding, also that of `over_groups`, have the
    spread `resolution`.
    """
    parts = []
    pairs = pd.DataFrame({"one": one, "other": other}).rename_axis("pair").reset_index()
    for start in range(0, max(len(pairs), 1), AT_A_TIME):
        both = pairs[start : start + AT_A_TIME].merge(rows, left_on="one", right_on="arm")
        both = both.merge(rows, left_on=["other", "seed"], right_on=["arm", "seed"])
        both["delta"] = both["value_x"] - both["value_y"]
        both["largest"] = both[["value_x", "value_y"]].abs().max(axis=1)
        of_pair = both.groupby("pair")
        own = of_pair["delta"].agg(["size", "mean", "std", "min", "max"])
        parts.append(own.assign(largest=of_pair["largest"].max()))
    d = pd.concat(parts).reindex(pairs.index)
    largest = d[["min", "max"]].abs().max(axis=1)
    rounding = np.maximum(1e-9 * largest, 4e-11 * d["largest"])
    is_spread = d["max"] - d["min"] > rounding
    spread = d["std"].where(is_spread, resolution)
    return pd.DataFrame(
        {
            "n": [f"{n:.0f}" if n > 0 else "" for n in d["size"]],
            "mean": d["mean"].astype(float),
            "error": (spread / np.sqrt(d["size"].astype(float))).where(d["size"] > 1),
            "df": d["size"].astype(float) - 1,
        }
    )


def _welch_estimates(arms: pd.DataFrame, one: NDArray[Any], other: NDArray[Any]) -> pd.DataFrame:
    """The same for Welch's test, which allows unequal variances. n has the runs of each side."""
    x, y = (arms.iloc[arm].reset_index(drop=True) for arm in (one, other))
    squared = x["error"] + y["error"]
    possible = (np.minimum(x["size"], y["size"]) > 1) & (squared > 0)
    df = squared**2 / (x["error"] ** 2 / (x["size"] - 1) + y["error"] ** 2 / (y["size"] - 1))
    return pd.DataFrame(
        {
            "n": [f"{a}, {b}" for a, b in zip(x["size"], y["size"], strict=True)],
            "mean": x["mean"] - y["mean"],
            "error": (squared**0.5).where(possible),
            "df": df.where(possible),
        }
    )


def _tests(frame: pd.DataFrame, margin: float) -> pd.DataFrame:
    """Replaces error and df by Student's interval, the two-sided p and two one-sided tests."""
    mean, error, df = frame[["mean", "error", "df"]].to_numpy(dtype=float).T
    error = np.where(error > 0, error, np.nan)
    reach = error * stats.t.ppf(0.975, df)
    outside = np.maximum(
        stats.t.sf((mean + margin) / error, df), stats.t.cdf((mean - margin) / error, df)
    )
    return frame.drop(columns=["error", "df"]).assign(
        low=mean - reach, high=mean + reach, p_t=2 * stats.t.sf(np.abs(mean) / error, df),
        p_equivalence=outside,
    )  # fmt: skip


def rankings(table: pd.DataFrame, comparisons: pd.DataFrame, criteria: Criteria) -> pd.DataFrame:
    """For each group its names from best to worst, with a sign between neighbours: > shown to be
    ahead, = shown to be equivalent, ? undecided, and rarely < if the second one is ahead on the
    common seeds. Columns: group, ranking, shown (the number of >) and of (neighbours).

    `comparisons` are all pairs of `compare_foreign`, which have the better name first."""
    arms = _arms(table, criteria)[1]
    signs = {AHEAD: ">", BEHIND: "<", EQUIVALENT: "=", UNDECIDED: "?"}
    digits = criteria.metric.digits - 1
    sign_of = comparisons.set_index(["group", "name", "than"])["verdict"].map(signs).to_dict()
    rows = []
    for group, part in arms.groupby("group", sort=False):
        names = part["name"].tolist()
        texts = [
            f"{name} {decimals(round(mean, digits + 8), digits)}"
            for name, mean in zip(names, part["mean"], strict=True)
        ]
        between = [sign_of.get((group, *two), "?") for two in pairwise(names)]
        text = texts[0] + "".join(
            f" {sign} {name}" for sign, name in zip(between, texts[1:], strict=True)
        )
        rows.append((group, text, between.count(">"), len(between)))
    return pd.DataFrame(rows, columns=["group", "ranking", "shown", "of"])
