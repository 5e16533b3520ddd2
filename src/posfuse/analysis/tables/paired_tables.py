"""The paired statistics as tables."""

from collections.abc import Sequence
from functools import partial

import pandas as pd

from posfuse.analysis.evidence.collect import CELL
from posfuse.analysis.statistics import paired as st
from posfuse.analysis.statistics.comparisons import Criteria
from posfuse.analysis.statistics.documents import DocumentEvidence
from posfuse.analysis.tables.table import (
    Column,
    Row,
    Table,
    count,
    if_many,
    interval,
    p_value,
    seeds,
    signed,
    signed_with_spread,
    table_of,
)

# Columns that several tables share.
N: Column = ("n", str, "n")
DIFFERENCE: Column = ("difference", signed_with_spread, "mean", "std")
MEAN: Column = ("difference", signed, "mean")
T_INTERVAL: Column = ("95 % t", interval, "low", "high")


def paired_tables(
    comparisons: pd.DataFrame,
    documents: DocumentEvidence,
    interactions: pd.DataFrame,
    trends: pd.DataFrame,
    criteria: Criteria,
) -> list[Table]:
    """The tables below, in the order of the report."""
    return [
        differences_table(comparisons, criteria),
        tests_table(comparisons, criteria),
        interactions_table(interactions, criteria.baseline),
        bins_table(documents.bins, trends, criteria.baseline),
        documents_table(documents.statistics, criteria.baseline),
    ]


def differences_table(comparisons: pd.DataFrame, criteria: Criteria) -> Table:
    """How large each difference is, and how many seeds it needs."""
    effect = f"{criteria.effect:g} point{'' if criteria.effect == 1 else 's'}"
    return table_of(
        comparisons,
        _keys(comparisons),
        [
            N,
            DIFFERENCE,
            T_INTERVAL,
            ("95 % BCa", interval, "bca_low", "bca_high"),
            ("d_z", signed, "d_z"),
            ("seeds: observed", seeds, "seeds_observed"),
            (f"seeds: {effect}", seeds, "seeds_effect"),
            ("seeds: equivalence", seeds, "seeds_equivalence"),
        ],
        name="paired_differences",
        title=f"Paired differences to {criteria.baseline}",
        caption=f"Fused minus {criteria.baseline} in points of test accuracy, seed by seed: mean ± "
        "standard deviation over n pairs; 95 % intervals by Student's t and by the bias-corrected "
        "accelerated bootstrap (too narrow with few seeds: 83 % with 5); d_z, mean over "
        "standard deviation. Seeds needed at 80 % power, alpha = 0.05 two-sided, at the "
        f"observed spread: to find the observed difference, to find {effect}, and to show "
        f"equivalence within ±{criteria.margin:g} points where there is no difference.",
    )


def tests_table(comparisons: pd.DataFrame, criteria: Criteria) -> Table:
    """The p-values of each difference, and what they decide."""
    return table_of(
        comparisons,
        _keys(comparisons),
        [
            N,
            ("p t", p_value, "p_t"),
            ("p Holm", p_value, "p_holm"),
            ("p Wilcoxon", p_value, "p_wilcoxon"),
            ("p sign flip", p_value, "p_sign_flip"),
            ("smallest", p_value, "smallest_p"),
            ("p equivalence", p_value, "p_equivalence"),
            ("equiv. Holm", p_value, "p_equivalence_holm"),
            ("conclusion", partial(conclusion, criteria=criteria)),
        ],
        name="paired_tests",
        title=f"Tests of the differences to {criteria.baseline}",
        caption="Two-sided p-values: paired t; Holm's adjustment of it over the family of all "
        f"{comparisons['p_t'].notna().sum()} comparisons in this table; Wilcoxon's signed rank; "
        "sign-flip permutation, and the smallest p that it can reach with n seeds. "
        f"{least_p(comparisons)} Equivalence: two one-sided t-tests, p for \"the difference "
        f"lies within ±{criteria.margin:g} points\", and Holm's adjustment of it over the same "
        f"family. Conclusion at alpha = {criteria.alpha:g}, of the adjusted p-values: differs, "
        "equivalent, both (a difference too small to matter), or undecided.",
    )  # fmt: skip


def short_table(comparisons: pd.DataFrame, criteria: Criteria) -> Table:
    """What of the two tables fits a terminal."""
    return table_of(
        comparisons,
        _keys(comparisons),
        [
            N,
            DIFFERENCE,
            T_INTERVAL,
            ("p Holm", p_value, "p_holm"),
            ("p equiv.", p_value, "p_equivalence_holm"),
            ("conclusion", partial(conclusion, criteria=criteria)),
        ],
        name="comparison",
        title=f"Paired differences to {criteria.baseline}, points of test accuracy",
        caption=least_p(comparisons),
    )


def least_p(comparisons: pd.DataFrame) -> str:
    """What the fewest seeds of the comparisons can show at best, in a sentence."""
    n = int(comparisons["n"].min()) if len(comparisons) else 0
    if n < 2:
        return "With one seed there is no test."
    least = st.smallest_p(n)
    return f"With {n} seeds no sign-flip or signed rank test can fall below p = {least:.2g}."


def conclusion(row: Row, criteria: Criteria) -> str:
    """differs, equivalent, both, or undecided."""
    differs = row["p_holm"] <= criteria.alpha
    equivalent = row["p_equivalence_holm"] <= criteria.alpha
    if differs and equivalent:
        return "both"
    return "differs" if differs else "equivalent" if equivalent else "undecided"


def documents_table(documents: pd.DataFrame, baseline: str) -> Table:
    """Seeds and documents: the hierarchical bootstrap, and McNemar for each seed."""
    return table_of(
        documents,
        _keys(documents),
        [
            ("n", lambda seeds: str(len(seeds)), "document_seeds"),
            ("documents", count, "n_documents"),
            ("difference", signed, "documents_mean"),
            ("95 % seeds and documents", interval, "documents_low", "documents_high"),
            ("p McNemar by seed", _by_seed, "document_seeds", "p_mcnemar"),
        ],
        name="documents",
        title="Differences over seeds and documents",
        caption=f"Difference to {baseline} in points with the 95 % interval of a hierarchical "
        "bootstrap that resamples both seeds and test documents: what to expect of other seeds "
        "and other documents of the same kind. McNemar's exact test for each seed asks whether its "
        "two models differ on these documents, not whether others would.",
    )


def _by_seed(seeds: Sequence[int], p_values: Sequence[float]) -> str:
    return "  ".join(f"{seed}: {p_value(p)}" for seed, p in zip(seeds, p_values, strict=True))


def bins_table(bins: pd.DataFrame, trends: pd.DataFrame, baseline: str) -> Table:
    """The gain by document length inside each corpus, with its trend."""
    slopes = {tuple(row[axis] for axis in CELL): row for row in trends.to_dict("records")}

    def trend(row: Row) -> str:
        slope = slopes.get(tuple(row[axis] for axis in CELL))
        return f"{slope['mean']:+.2f}, p = {p_value(slope['p_t']) or 'none'}" if slope else ""

    return table_of(
        bins.drop(columns="gains", errors="ignore"),
        _keys(bins),
        [
            ("tokens", "{} to {}".format, "shortest", "longest"),
            ("documents", count, "n_documents"),
            N,
            MEAN,
            T_INTERVAL,
            ("trend", trend),
        ],
        name="gain_by_length",
        title="Gain by document length inside each corpus",
        caption=f"Difference to {baseline} in points of test accuracy among the documents of each "
        "length bin (quartiles; tokens as far as the model reads), mean over n seeds with its 95 % "
        "t interval. Trend: slope in points per doubling of length, one a seed, and its two-sided "
        "p.",
    )


def interactions_table(interactions: pd.DataFrame, baseline: str) -> Table:
    """Does the gain grow with length, across corpora?"""
    return table_of(
        interactions,
        _keys(interactions)[1:],
        [
            ("corpora", str, "corpora"),
            N,
            ("slope", signed, "mean"),
            T_INTERVAL,
            ("p t", p_value, "p_t"),
            ("p sign flip", p_value, "p_sign_flip"),
        ],
        name="interaction",
        title="Does the gain grow with length, across corpora?",
        caption=f"Slope of the difference to {baseline} over the corpora's mean length, in points "
        "per doubling: least squares for each seed that all of the corpora have, then the mean of "
        "those n slopes, its 95 % t interval, and two-sided p by t and by sign flips. Corpora "
        "differ in more than length.",
    )


def _keys(frame: pd.DataFrame) -> list[str]:
    """The columns that name a comparison."""
    return ["data", "encoding", "fusion", *if_many(frame, "variant")]
