"""The paired statistics as tables."""

from collections.abc import Sequence
from functools import partial

import numpy as np
import pandas as pd

from posfuse.analysis.evidence.collect import CELL
from posfuse.analysis.evidence.metric import ACCURACY, Metric
from posfuse.analysis.statistics import paired as st
from posfuse.analysis.statistics.comparisons import (
    EXPLORATORY,
    PLACEBO,
    PRIMARY,
    Criteria,
    family_size,
    strictest_level,
)
from posfuse.analysis.statistics.documents import DocumentEvidence
from posfuse.analysis.statistics.shares import GAMMA, outperforms
from posfuse.analysis.tables import table
from posfuse.analysis.tables.table import Column, Row, Table, interval, p_value, signed, table_of

# Columns that several tables share.
N: Column = ("n", str, "n")


def difference(metric: Metric, heading: str = "difference") -> Column:
    return heading, partial(table.signed_with_spread, digits=metric.digits), "mean", "std"


def t_interval(metric: Metric) -> Column:
    return "95 % t", partial(interval, digits=metric.digits), "low", "high"


def _adjusted(role: str, adjusted: float, alone: float) -> str:
    """The adjusted p-value; outside the family the unadjusted one, marked as such."""
    if role == PRIMARY or np.isnan(alone):
        return p_value(adjusted)
    return f"{p_value(alone)} (unadj.)"


P_HOLM: Column = ("p Holm", _adjusted, "role", "p_holm", "p_t")
P_EQUIVALENCE: Column = (
    "p equiv.", _adjusted, "role", "p_equivalence_holm", "p_equivalence"
)  # fmt: skip


def _verdict(verdict: str, small: bool) -> str:
    return f"{verdict}, within margin" if small else verdict


VERDICT: Column = ("verdict", _verdict, "verdict", "small")


def verdict_columns(metric: Metric, heading: str = "difference") -> list[Column]:
    """A difference with its interval, its adjusted p-values and its verdict."""
    ends = partial(interval, digits=metric.digits)
    return [
        difference(metric, heading), ("95 % t", ends, "low", "high"), P_HOLM, P_EQUIVALENCE, VERDICT
    ]  # fmt: skip


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
        interactions_table(interactions, criteria),
        bins_table(documents.bins, trends, criteria.baseline),
        documents_table(documents.statistics, criteria),
    ]


def differences_table(comparisons: pd.DataFrame, criteria: Criteria) -> Table:
    """How large each difference is, and how many seeds it needs."""
    metric = criteria.metric
    effect = metric.amount(criteria.effect)
    level = strictest_level(comparisons, criteria)
    return table_of(
        comparisons,
        [
            N,
            difference(metric),
            t_interval(metric),
            ("95 % BCa", partial(interval, digits=metric.digits), "bca_low", "bca_high"),
            ("d_z", signed, "d_z"),
            ("P(A > B)", table.unsigned, "wins"),
            ("95 % exact", table.unsigned_interval, "wins_low", "wins_high"),
            ("outperforms", outperforms, "wins_low", "wins_high"),
            ("seeds: observed", table.seeds, "seeds_observed"),
            (f"seeds: {effect}", table.seeds, "seeds_effect"),
            ("seeds: equivalence", table.seeds, "seeds_equivalence"),
        ],
        name="paired_differences",
        title=f"Paired differences to {criteria.baseline}",
        caption=f"{gains(criteria)}, paired by seed: mean "
        "± standard deviation over n pairs. 95 % intervals: Student's t, and the bias-corrected "
        "accelerated bootstrap (BCa), which is too narrow with few seeds (it covers 83 % with 5). "
        "d_z: mean divided by standard deviation. P(A > B): the probability that the operator "
        f"beats {criteria.baseline} with the same seed (a tie counts half), with its exact "
        "interval. outperforms (Bouthillier et al. 2021): yes if that interval is above 0.5 and "
        f"reaches above {GAMMA:g}, loses if the reverse holds, little if it excludes 0.5 but does "
        "not reach that far. Seeds needed for 80 % power, two-sided, at alpha "
        f"= {level:.2g} ({criteria.alpha:g} divided by the size of the family, the strictest of "
        "Holm's levels) and for the upper 80 % confidence limit of the standard deviation: to "
        f"detect the observed difference, to detect {effect}, and to show equivalence within "
        f"±{criteria.within} if the true difference is 0.",
    )


def tests_table(comparisons: pd.DataFrame, criteria: Criteria) -> Table:
    """The p-values of each difference, and what they decide."""
    return table_of(
        comparisons,
        [
            N,
            ("p t", p_value, "p_t"),
            ("p Holm", p_value, "p_holm"),
            ("p Wilcoxon", p_value, "p_wilcoxon"),
            ("p sign flip", p_value, "p_sign_flip"),
            ("smallest", p_value, "smallest_p"),
            ("p equivalence", p_value, "p_equivalence"),
            ("equiv. Holm", p_value, "p_equivalence_holm"),
            VERDICT,
        ],
        name="paired_tests",
        title=f"Tests of the differences to {criteria.baseline}",
        caption="Two-sided p-values: paired t-test; its Holm adjustment over the "
        f"{family_size(comparisons)} comparisons of the family; Wilcoxon's signed-rank "
        "test; sign-flip permutation test; smallest: the lowest p that n seeds can reach in the "
        f"last two. {least_p(comparisons)} p equivalence: two one-sided t-tests of \"the "
        f"difference is within ±{criteria.within}\"; equiv. Holm: its Holm adjustment "
        "over the same comparisons. The verdict uses the adjusted p-values at alpha = "
        f"{criteria.alpha:g}: ahead, behind (either may be too small to matter), equivalent or "
        f"undecided. {outside_family(comparisons, criteria)}".rstrip(),
    )  # fmt: skip


def short_table(
    comparisons: pd.DataFrame,
    criteria: Criteria,
    name: str = "comparison",
    title: str = "",
    caption: str = "",
) -> Table:
    """The columns of the two tables that fit a terminal; `caption` comes before its own."""
    metric = criteria.metric
    return table_of(
        comparisons,
        [N, *verdict_columns(metric)],
        name=name,
        title=title or f"Paired differences to {criteria.baseline}, {metric.points}{metric.better}",
        caption=" ".join(
            filter(None, [caption, least_p(comparisons), outside_family(comparisons, criteria)])
        ),
    )


def outside_family(comparisons: pd.DataFrame, criteria: Criteria) -> str:
    """What the verdicts exploratory and placebo mean, if any row has them."""
    texts = {
        EXPLORATORY: f"exploratory: not in the sweep's primary family "
        f"({', '.join(criteria.primary)}), so its p-values are not adjusted (unadj.) and decide "
        "nothing.",
        PLACEBO: "placebo: without position; the table of placebos compares it with the same "
        "operator with position.",
    }
    roles = set(comparisons["role"])
    return " ".join(text for role, text in texts.items() if role in roles)


def least_p(comparisons: pd.DataFrame) -> str:
    """A sentence with the lowest p that the comparison with the fewest seeds can reach."""
    n = int(comparisons["n"].min()) if len(comparisons) else 0
    if n < 2:
        return "One seed gives no test."
    least = st.smallest_p(n)
    return f"With {n} seeds no sign-flip or signed-rank test can give p < {least:.2g}."


def gains(criteria: Criteria) -> str:
    """What a difference is, as the start of a caption."""
    return gains_of(criteria, f"test {criteria.metric.title}")


def gains_of(criteria: Criteria, what: str) -> str:
    """The same for another number in the unit of the metric."""
    metric = criteria.metric
    points = "points of " if metric.is_share else ""
    return f"Fused minus {criteria.baseline} in {points}{what}{metric.better}"


def to_baseline(criteria: Criteria) -> str:
    """What a difference is, as the start of a shorter caption."""
    metric = criteria.metric
    return f"Difference to {criteria.baseline} in {metric.points}{metric.better}"


def documents_table(documents: pd.DataFrame, criteria: Criteria) -> Table:
    """The hierarchical bootstrap over seeds and documents, and McNemar's test of each seed."""
    digits = criteria.metric.digits
    ends = partial(interval, digits=digits)
    of_seeds: list[Column] = []
    tested, groups = "", "which are resampled together"
    if "p_mcnemar" in documents:
        of_seeds = [("p McNemar by seed", _by_seed, "document_seeds", "p_mcnemar")]
        tested = (
            " McNemar's exact test compares the two models of one seed on these documents; it is "
            "not about other seeds."
        )
        groups += " and have one sign in McNemar's test"
    return table_of(
        documents,
        [
            ("n", lambda seeds: str(len(seeds)), "document_seeds"),
            ("documents", _in_groups, "n_documents", "n_groups"),
            ("difference", partial(signed, digits=digits), "documents_mean"),
            ("95 % seeds and documents", ends, "documents_low", "documents_high"),
            ("90 %", ends, "documents_low_90", "documents_high_90"),
            (
                "equivalent",
                partial(_inside, criteria.margin),
                "documents_low_90",
                "documents_high_90",
            ),
            *of_seeds,
        ],
        name="documents",
        title="Differences over seeds and documents",
        caption=f"{to_baseline(criteria)} with the intervals of a hierarchical "
        "bootstrap that resamples seeds and test documents, so they are about other seeds and "
        "documents like these. equivalent: whether the 90 % interval lies within "
        f"±{criteria.within}, not adjusted for the number of comparisons. The equivalence of the "
        f"table of tests is about these test documents only.{tested} In brackets: groups "
        f"of documents that begin with the same article, {groups}.",
    )


def _in_groups(documents: int, groups: int) -> str:
    return f"{documents:,}" + (f" ({groups:,})" if groups < documents else "")


def _inside(margin: float, low: float, high: float) -> str:
    if np.isnan(low):
        return ""
    return "yes" if -margin < low and high < margin else "no"


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
        [
            ("tokens", "{} to {}".format, "shortest", "longest"),
            ("documents", table.count, "n_documents"),
            N,
            ("difference", signed, "mean"),
            t_interval(ACCURACY),
            ("trend", trend),
        ],
        name="gain_by_length",
        title="Gain by document length inside each corpus",
        caption=f"Difference to {baseline} in points of test accuracy among the documents of each "
        "length bin: mean over n seeds with its 95 % t interval. The bins are quartiles of the "
        "number of tokens that the model reads. Trend: mean slope over seeds in points per "
        "doubling of length, and its two-sided p.",
    )


def interactions_table(interactions: pd.DataFrame, criteria: Criteria) -> Table:
    """Does the gain grow with length, across corpora?"""
    metric = criteria.metric
    return table_of(
        interactions,
        [
            ("one task", str, "task"),
            ("corpora", str, "corpora"),
            N,
            ("slope", partial(signed, digits=metric.digits), "mean"),
            t_interval(metric),
            ("p t", p_value, "p_t"),
            ("p sign flip", p_value, "p_sign_flip"),
            ("p fit", p_value, "p_fit"),
        ],
        name="interaction",
        title="Does the gain grow with length, across corpora?",
        caption=f"Slope of the difference to {criteria.baseline} over the mean length of the "
        f"corpora, in {metric.unit} per doubling of length. Least squares gives one slope for each "
        "seed that all corpora have; the table shows the mean of these n slopes, its 95 % t "
        "interval, and the two-sided p of a t-test and of sign flips. p fit: lack of fit, a "
        "t-test of each seed's curvature, from three lengths; if it is small, the gain does not "
        "follow a straight line and its slope means little. one task: the task of which these "
        "corpora vary the length "
        "alone; other corpora differ in more than length.",
    )
