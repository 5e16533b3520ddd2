"""The runs of one sweep, and values for several sections of its report. Each value is computed
once."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pandas as pd

from posfuse.evidence.collect import missing, predicting
from posfuse.evidence.metric import ACCURACY, METRICS, Metric
from posfuse.runs.measurements import CLASSES, WINDOWS
from posfuse.statistics.cells import is_held
from posfuse.statistics.comparisons import Criteria, cells, compare, criteria_for
from posfuse.statistics.documents import DocumentEvidence, document_evidence
from posfuse.statistics.lengths import beyond
from posfuse.statistics.own_best import OwnBest, own_best
from posfuse.statistics.second_differences import placebos, pretraining_effect
from posfuse.verdicts.claims import Claims, ClaimVerdict, judge_claims

Compared = tuple[pd.DataFrame, list[str]]  # the rows of `compare`, and its notes


@dataclass(frozen=True)
class Sweep:
    folder: str
    runs: pd.DataFrame  # rows of `collect`
    criteria: Criteria
    claims: Claims
    own_claims: bool = False  # the claims are the user's, not the paper's
    out: Path = Path("report")  # the folder of the report
    notes: Sequence[str] = ()  # about the sweep as a whole
    left_out: int = 0  # records in the folder that are not among the runs

    @property
    def name(self) -> str:
        return str(self.runs["sweep_id"].iloc[0])

    @property
    def metric(self) -> Metric:
        return self.criteria.metric

    @cached_property
    def has_baseline(self) -> bool:
        return self.criteria.baseline in set(self.runs["fusion"])

    @cached_property
    def held(self) -> "pd.Series[bool]":
        """The runs with a fixed source of randomness, which are not compared."""
        return is_held(self.runs)

    @cached_property
    def cells(self) -> pd.DataFrame:
        return cells(self.runs, self.metric)

    @cached_property
    def compared(self) -> Compared:
        """The comparisons with the baseline on the test split."""
        return self._compare(self.criteria, is_beyond=False)

    @property
    def comparisons(self) -> pd.DataFrame:
        return self.compared[0]

    @cached_property
    def beyond(self) -> Compared:
        """The comparisons of the areas beyond the trained length."""
        return self._compare(self.criteria, is_beyond=True)

    def _compare(self, criteria: Criteria, is_beyond: bool) -> Compared:
        runs = self.runs[~self.held] if self.has_baseline else self.runs.iloc[:0]
        return compare(beyond(runs, criteria.metric) if is_beyond else runs, criteria)

    @cached_property
    def best(self) -> OwnBest:
        return own_best(self.runs[~self.held], self.criteria)

    @property
    def is_tuned(self) -> bool:
        """True if runs differ in a tuned key."""
        return len(self.best.cells) > 0

    @cached_property
    def placebos(self) -> pd.DataFrame:
        return placebos(self.comparisons, self.criteria)

    @cached_property
    def best_placebos(self) -> pd.DataFrame:
        return placebos(self.best.best, self.criteria)

    @cached_property
    def pretraining_effect(self) -> pd.DataFrame:
        return pretraining_effect(self.comparisons, self.criteria)

    @cached_property
    def classifiers(self) -> pd.DataFrame:
        return predicting(self.runs)

    @cached_property
    def documents(self) -> tuple[DocumentEvidence, list[str]]:
        """The statistics of the saved predictions, and a line for each run that is left out."""
        runs, metric = self.runs, self.metric
        are_classes = metric == ACCURACY and len(self.classifiers) > 0
        kind = CLASSES if are_classes else WINDOWS
        comparisons, runs = predicting(self.comparisons, runs, kind), predicting(runs, kind=kind)
        of_windows = None if are_classes else metric
        return document_evidence(comparisons, runs, self.criteria.baseline, of_windows)

    @cached_property
    def missing(self) -> list[str]:
        """The folders of runs without a record."""
        return missing(self.runs)

    @cached_property
    def verdicts(self) -> list[ClaimVerdict]:
        compared = {self.metric.name: (self.comparisons, self.beyond[0])}
        for name in {claim.metric for claim in self.claims.claims} - {self.metric.name}:
            own = criteria_for(self.criteria, METRICS[name])
            compared[name] = (self._compare(own, False)[0], self._compare(own, True)[0])
        return judge_claims(self.claims, compared, self.criteria)
