"""Everything that a report contains, computed from the runs of one sweep."""

from dataclasses import dataclass

import pandas as pd

from posfuse.analysis.claims.verdicts import Claims, Verdict, judge_claims
from posfuse.analysis.evidence.bag_of_words import Bags, bags_of_words
from posfuse.analysis.evidence.collect import (
    failures,
    learning_curves,
    missing,
    of_classifiers,
    standing,
)
from posfuse.analysis.evidence.mechanism import mechanism
from posfuse.analysis.evidence.metric import ACCURACY, METRICS
from posfuse.analysis.headline import headline
from posfuse.analysis.statistics import cautions
from posfuse.analysis.statistics.comparisons import (
    Criteria,
    cells,
    compare,
    criteria_for,
)
from posfuse.analysis.statistics.convergence import convergence
from posfuse.analysis.statistics.documents import DocumentEvidence, document_evidence
from posfuse.analysis.statistics.lengths import SLIDING, beyond, by_test_length
from posfuse.analysis.statistics.own_best import OwnBest, keys_of, own_best
from posfuse.analysis.statistics.placebo import placebos
from posfuse.analysis.statistics.pretraining import survival
from posfuse.analysis.statistics.slopes import interactions, trends
from posfuse.analysis.statistics.solved import solved_best, solved_cells, thresholds
from posfuse.analysis.statistics.variance import is_held, variance
from posfuse.analysis.statistics.windows import window_evidence
from posfuse.analysis.tables.cautions_table import cautions_tables
from posfuse.analysis.tables.description_tables import (
    convergence_tables,
    solved_tables,
    variance_tables,
)
from posfuse.analysis.tables.length_tables import length_tables
from posfuse.analysis.tables.own_best_tables import own_best_tables
from posfuse.analysis.tables.paired_tables import paired_tables
from posfuse.analysis.tables.paper_tables import paper_tables
from posfuse.analysis.tables.second_tables import second_tables
from posfuse.analysis.tables.table import Table
from posfuse.errors import InputError
from posfuse.runs.coverage import coverage_warning


@dataclass(frozen=True)
class Findings:
    runs: pd.DataFrame
    cells: pd.DataFrame
    comparisons: pd.DataFrame
    own_best: OwnBest
    placebos: pd.DataFrame
    survival: pd.DataFrame  # of gains after pretraining
    documents: DocumentEvidence
    curves: pd.DataFrame
    by_test_length: pd.DataFrame  # results by run and test length; empty without data.test_lengths
    mechanism: pd.DataFrame  # how models use position; empty for records without it
    tables: list[Table]  # the paper's
    tuned: list[Table]  # over token scales and learning rates; empty if the runs do not vary them
    paired: list[Table]
    described: list[Table]
    cautions: list[Table]  # what the comparisons lean on; empty if there is no caution
    verdicts: list[Verdict]
    folded: list[Verdict]  # the paper's claims without a comparison, shown as one line
    headline: list[str]
    missing: list[str]  # folders of runs without a record
    failures: list[str]
    problems: list[str]  # damaged or contradictory inputs, which were left out
    notes: list[str]  # what could not be compared, and other remarks


def analyse(
    folder: str,
    runs: pd.DataFrame,
    problems: list[str],
    claims: Claims,
    criteria: Criteria,
    own_claims: bool = False,
) -> Findings:
    """Analyse the runs of one sweep below `folder`.

    `problems` are those found while the runs were collected. Every claim gets a verdict if the
    claims are the user's own; of the paper's claims only those for which there is a comparison.
    """
    problems = list(problems)
    fusions = sorted(set(runs["fusion"]))
    has_baseline = criteria.baseline in fusions
    if not has_baseline:
        known = ", ".join(fusions)
        problems.append(f"--baseline: no run has fusion={criteria.baseline}; use {known}")
    compared = runs[~is_held(runs)]
    metric = criteria.metric
    with_baseline = compared if has_baseline else runs.iloc[:0]
    comparisons, notes = compare(with_baseline, criteria)
    without_position = placebos(comparisons, criteria)
    survived = survival(comparisons, criteria)
    classifiers = of_classifiers(runs)
    documents, mismatched = document_evidence(
        of_classifiers(comparisons, runs), classifiers, criteria.baseline
    )
    if metric != ACCURACY or classifiers.empty:
        by_window, mismatched = window_evidence(comparisons, runs, criteria)
        documents = DocumentEvidence(by_window, documents.bins.iloc[:0], {})
    bags, without_bag = bags_of_words(classifiers)
    curves, without_curve = learning_curves(runs, metric)
    measured, unreadable = mechanism(runs)
    lengths = by_test_length(runs, metric)
    # Its notes are those of the comparisons.
    beyond_compared, _ = compare(beyond(with_baseline, metric), criteria)
    best = own_best(compared, criteria)
    best_without_position = placebos(best.best, criteria)
    if criteria.select and not best.keys:
        problems.append(
            "--select-seeds: there is nothing to choose, because all runs have the same "
            "model.token_scale and optim.lr; remove this option"
        )
    notes += [
        f"{name}: in the primary family, but without runs here"
        for name in criteria.primary
        if name not in fusions
    ]
    summary = cells(runs, metric)
    described, remarks = _descriptions(runs, comparisons, best, criteria)
    try:
        absent = missing(folder, runs)
    except InputError as error:
        absent = []
        problems.append(str(error))
    others = {}
    for name in {claim.metric for claim in claims.claims} - {metric.name}:
        own = criteria_for(criteria, METRICS[name])
        longer = beyond(with_baseline, METRICS[name])
        others[name] = (compare(with_baseline, own)[0], compare(longer, own)[0])
    verdicts = judge_claims(claims, comparisons, criteria, beyond_compared, others)
    notes = [*_coverage_warnings(runs), *notes]
    notes += [*_without_order(summary, bags), *best.notes, *without_bag, *remarks]
    return Findings(
        runs=runs,
        cells=summary,
        comparisons=comparisons,
        own_best=best,
        placebos=without_position,
        survival=survived,
        documents=documents,
        curves=curves,
        by_test_length=lengths,
        mechanism=measured,
        tables=paper_tables(summary, bags, metric),
        tuned=[
            *second_tables(best_without_position, criteria, keys_of(best.best)),
            *own_best_tables(best, criteria),
        ],
        paired=[
            *second_tables(without_position, criteria),
            *second_tables(survived, criteria),
            *paired_tables(
                comparisons,
                documents,
                interactions(comparisons, metric),
                trends(documents.bins),
                criteria,
            ),
            *length_tables(
                lengths, by_test_length(runs, metric, SLIDING), beyond_compared, criteria
            ),
        ],
        described=described,
        cautions=cautions_tables(
            cautions.of_comparisons(comparisons, best.best, runs, criteria), "comparisons"
        ),
        verdicts=[v for v in verdicts if own_claims or v.judged],
        folded=[v for v in verdicts if not own_claims and not v.judged],
        headline=[
            *headline(
                summary,
                comparisons,
                best.best,
                criteria,
                [without_position, survived],
                [best_without_position],
            ),
            standing(folder, str(runs["sweep_id"].iloc[0])),
        ],
        missing=absent,
        failures=failures(folder, runs),
        problems=[*problems, *mismatched, *without_curve, *unreadable],
        notes=list(dict.fromkeys(notes)),  # variants of one corpus may repeat a note
    )


def _coverage_warnings(runs: pd.DataFrame) -> list[str]:
    """A line for each corpus, and variant of it, whose tokens do not represent its texts."""
    lines = []
    for _, group in runs.groupby(["data", "variant"], sort=False):
        lines += [*filter(None, map(coverage_warning, group.to_dict("records")))][:1]
    return lines


def _descriptions(
    runs: pd.DataFrame, comparisons: pd.DataFrame, best: OwnBest, criteria: Criteria
) -> tuple[list[Table], list[str]]:
    """The tables that describe the runs of each cell, and remarks about them."""
    base = criteria.baseline
    above = thresholds(runs, criteria) if criteria.metric == ACCURACY else {}
    tables = [
        *solved_tables(solved_cells(runs, comparisons, above), solved_best(best.best, above), base),
        *convergence_tables(convergence(runs)),
        *variance_tables(variance(runs, criteria), criteria),
    ]
    remarks = []
    if held := int(is_held(runs).sum()):
        remarks.append(
            f"{held} runs have a source of randomness fixed (seeds.*); they show the spread of the "
            "other sources, and are not compared with the baseline"
        )
    return tables, remarks


def _without_order(cells: pd.DataFrame, bags: Bags) -> list[str]:
    """A note for each corpus on which a bag of words is as good as every fusion."""
    notes = []
    for (data, variant), bag in bags.items():
        same = (cells["data"] == data) & (cells["variant"] == variant)
        if bag.accuracy >= cells.loc[same, "mean"].max():
            notes.append(
                f"{data}: a bag of words reaches {bag.accuracy:.2f} %, at least as much as every "
                "fusion; this corpus shows little about position"
            )
    return notes
