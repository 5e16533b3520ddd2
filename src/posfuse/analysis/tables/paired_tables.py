"""The paired statistics as tables."""

from typing import Any

import pandas as pd

from posfuse.analysis.evidence.collect import CELL
from posfuse.analysis.statistics import paired as st
from posfuse.analysis.statistics.comparisons import Criteria
from posfuse.analysis.statistics.documents import DocumentEvidence
from posfuse.analysis.tables.table import (
    Table,
    if_many,
    interval,
    joined,
    number,
    p_value,
    seeds,
    with_spread,
)


def all_tables(
    comparisons: pd.DataFrame,
    documents: DocumentEvidence,
    interactions: pd.DataFrame,
    trends: pd.DataFrame,
    criteria: Criteria,
) -> list[Table]:
    """The tables below, in the order of the report."""
    base = criteria.baseline
    return [
        *paired_tables(comparisons, criteria),
        interactions_table(interactions, base),
        bins_table(documents.bins, trends, base),
        documents_table(documents.statistics, base),
    ]


def paired_tables(comparisons: pd.DataFrame, criteria: Criteria) -> list[Table]:
    """The paired statistics in two tables: how large, and how sure."""
    keys = ["data", "encoding", "fusion", *if_many(comparisons, "variant")]
    base, margin = criteria.baseline, criteria.margin
    effect = f"{criteria.effect:g} point{'' if criteria.effect == 1 else 's'}"
    sizes, tests = [], []
    for row in comparisons.to_dict("records"):
        labels = [row[key] for key in keys]
        sizes.append(
            [
                *labels,
                str(row["n"]),
                with_spread(row["mean"], row["std"], 2, sign=True),
                interval(row["low"], row["high"]),
                interval(row["bca_low"], row["bca_high"]),
                number(row["d_z"], "{:+.2f}"),
                seeds(row["seeds_observed"]),
                seeds(row["seeds_effect"]),
                seeds(row["seeds_equivalence"]),
            ]
        )
        tests.append(
            [
                *labels,
                str(row["n"]),
                p_value(row["p_t"]),
                p_value(row["p_holm"]),
                p_value(row["p_wilcoxon"]),
                p_value(row["p_sign_flip"]),
                p_value(row["smallest_p"]),
                p_value(row["p_equivalence"]),
                p_value(row["p_equivalence_holm"]),
                conclusion(row, criteria),
            ]
        )
    numbers = comparisons.assign(
        seeds=comparisons["seeds"].map(joined), deltas=comparisons["deltas"].map(joined)
    )
    return [
        Table(
            "paired_differences",
            f"Paired differences to {base}",
            f"Fused minus {base} in points of test accuracy, seed by seed: mean ± standard "
            "deviation over n pairs; 95 % intervals by Student's t and by the bias-corrected "
            "accelerated bootstrap (too narrow with few seeds: 83 % with 5); d_z, mean over "
            "standard deviation. Seeds needed at 80 % power, alpha = 0.05 two-sided, at the "
            f"observed spread: to find the observed difference, to find {effect}, and to show "
            f"equivalence within ±{margin:g} points where there is no difference.",
            [*keys, "n", "difference", "95 % t", "95 % BCa", "d_z", "seeds: observed",
             f"seeds: {effect}", "seeds: equivalence"],
            sizes,
            numbers,
        ),
        Table(
            "paired_tests",
            f"Tests of the differences to {base}",
            "Two-sided p-values: paired t; Holm's adjustment of it over the family of all "
            f"{_family(comparisons)} comparisons in this table; Wilcoxon's signed rank; sign-flip "
            "permutation, and the smallest p that it can reach with n seeds. "
            f"{least_p(comparisons)} Equivalence: two one-sided t-tests, p for \"the difference "
            f"lies within ±{margin:g} points\", and Holm's adjustment of it over the same family. "
            f"Conclusion at alpha = {criteria.alpha:g}, of the adjusted p-values: differs, "
            "equivalent, both (a difference too small to matter), or undecided.",
            [*keys, "n", "p t", "p Holm", "p Wilcoxon", "p sign flip", "smallest", "p equivalence",
             "equiv. Holm", "conclusion"],
            tests,
            numbers,
        ),
    ]  # fmt: skip


def short_table(comparisons: pd.DataFrame, criteria: Criteria) -> Table:
    """What of the two tables fits a terminal."""
    keys = ["data", "encoding", "fusion", *if_many(comparisons, "variant")]
    rows = [
        [
            *(row[key] for key in keys),
            str(row["n"]),
            with_spread(row["mean"], row["std"], 2, sign=True),
            interval(row["low"], row["high"]),
            p_value(row["p_holm"]),
            p_value(row["p_equivalence_holm"]),
            conclusion(row, criteria),
        ]
        for row in comparisons.to_dict("records")
    ]
    return Table(
        "comparison",
        f"Paired differences to {criteria.baseline}, points of test accuracy",
        least_p(comparisons),
        [*keys, "n", "difference", "95 % t", "p Holm", "p equiv.", "conclusion"],
        rows,
        comparisons,
    )


def least_p(comparisons: pd.DataFrame) -> str:
    """What the fewest seeds of the comparisons can show at best, in a sentence."""
    n = int(comparisons["n"].min()) if len(comparisons) else 0
    if n < 2:
        return "With one seed there is no test."
    least = st.smallest_p(n)
    return f"With {n} seeds no sign-flip or signed rank test can fall below p = {least:.2g}."


def conclusion(row: dict[Any, Any], criteria: Criteria) -> str:
    """differs, equivalent, both, or undecided."""
    differs = row["p_holm"] <= criteria.alpha
    equivalent = row["p_equivalence_holm"] <= criteria.alpha
    if differs and equivalent:
        return "both"
    return "differs" if differs else "equivalent" if equivalent else "undecided"


def _family(comparisons: pd.DataFrame) -> int:
    return int(comparisons["p_t"].notna().sum())


def documents_table(documents: pd.DataFrame, baseline: str) -> Table:
    """Seeds and documents: the hierarchical bootstrap, and McNemar for each seed."""
    keys = ["data", "encoding", "fusion", *if_many(documents, "variant")]
    rows = [
        [
            *(row[key] for key in keys),
            str(len(row["document_seeds"])),
            f"{row['n_documents']:,}",
            number(row["documents_mean"], "{:+.2f}"),
            interval(row["documents_low"], row["documents_high"]),
            "  ".join(
                f"{seed}: {p_value(p)}"
                for seed, p in zip(row["document_seeds"], row["p_mcnemar"], strict=True)
            ),
        ]
        for row in documents.to_dict("records")
    ]
    numbers = documents.assign(
        document_seeds=documents["document_seeds"].map(joined),
        p_mcnemar=documents["p_mcnemar"].map(joined),
    )
    return Table(
        "documents",
        "Differences over seeds and documents",
        f"Difference to {baseline} in points with the 95 % interval of a hierarchical bootstrap "
        "that draws both seeds and test documents anew: what to expect of other seeds and other "
        "documents of the same kind. McNemar's exact test for each seed asks whether its two "
        "models differ on these documents; it says nothing of other seeds.",
        [*keys, "n", "documents", "difference", "95 % seeds and documents", "p McNemar by seed"],
        rows,
        numbers,
    )


def bins_table(bins: pd.DataFrame, trends: pd.DataFrame, baseline: str) -> Table:
    """The gain by document length inside each corpus, with its trend."""
    keys = ["data", "encoding", "fusion", *if_many(bins, "variant")]
    slopes = {tuple(row[axis] for axis in CELL): row for row in trends.to_dict("records")}
    rows = [
        [
            *(row[key] for key in keys),
            f"{row['shortest']} to {row['longest']}",
            f"{row['n_documents']:,}",
            str(row["n"]),
            number(row["mean"], "{:+.2f}"),
            interval(row["low"], row["high"]),
            _trend(slopes.get(tuple(row[axis] for axis in CELL))),
        ]
        for row in bins.to_dict("records")
    ]
    return Table(
        "gain_by_length",
        "Gain by document length inside each corpus",
        f"Difference to {baseline} in points of test accuracy among the documents of each length "
        "bin (quartiles; tokens as far as the model reads), mean over n seeds with its 95 % t "
        "interval. Trend: slope in points per doubling of length, one a seed, and its two-sided p.",
        [*keys, "tokens", "documents", "n", "difference", "95 % t", "trend"],
        rows,
        bins.drop(columns="gains", errors="ignore"),
    )


def interactions_table(interactions: pd.DataFrame, baseline: str) -> Table:
    """Does the gain grow with length, across corpora?"""
    keys = ["encoding", "fusion", *if_many(interactions, "variant")]
    rows = [
        [
            *(row[key] for key in keys),
            row["corpora"],
            str(row["n"]),
            number(row["mean"], "{:+.2f}"),
            interval(row["low"], row["high"]),
            p_value(row["p_t"]),
            p_value(row["p_sign_flip"]),
        ]
        for row in interactions.to_dict("records")
    ]
    return Table(
        "interaction",
        "Does the gain grow with length, across corpora?",
        f"Slope of the difference to {baseline} over the corpora's mean length, in points per "
        "doubling: least squares for each seed that all of the corpora have, then the mean of "
        "those n slopes, its 95 % t interval, and two-sided p by t and by sign flips. Corpora "
        "differ in more than length.",
        [*keys, "corpora", "n", "slope", "95 % t", "p t", "p sign flip"],
        rows,
        interactions.assign(slopes=interactions["slopes"].map(joined)),
    )


def _trend(row: dict[Any, Any] | None) -> str:
    return f"{row['mean']:+.2f}, p = {p_value(row['p_t']) or 'none'}" if row else ""
