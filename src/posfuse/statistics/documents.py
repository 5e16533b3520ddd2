"""Statistics of the saved predictions, over documents and seeds.

Shapes: S seeds, D test documents (for a language model windows or strings), C classes. Documents
that share a part are a group. They are resampled together, because they are often classified alike.
"""

import hashlib
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.metrics import confusion_matrix

from posfuse.errors import InputError
from posfuse.evidence.collect import CELL, GROUP
from posfuse.evidence.saved import read_predictions, read_windows
from posfuse.runs.records import PREDICTIONS
from posfuse.runs.seeds import BY_RUN
from posfuse.statistics import over_documents as over
from posfuse.statistics import paired as st
from posfuse.statistics.comparisons import Criteria

SPLIT_SEED = "settings.data.split_seed"
BINS = 4  # quantiles of document length


@dataclass(frozen=True)
class Paired:
    """The predictions of one comparison: both operators with each seed, on the same documents."""

    seeds: list[Any]  # S
    length: NDArray[Any]  # (D,); (S, D) if each seed has its own documents
    label: NDArray[Any]  # as length
    predicted: NDArray[Any]  # (S, D)
    baseline: NDArray[Any]  # (S, D)
    group: NDArray[Any] | None = None  # (D,); None: each document is a group

    @property
    def difference(self) -> NDArray[np.float64]:
        """Correct fused minus correct baseline, in points, (S, D).

        Its mean is the difference in accuracy.
        """
        correct, base = self.predicted == self.label, self.baseline == self.label
        return np.asarray(100 * np.subtract(correct, base, dtype=float))


def read_all(runs: pd.DataFrame) -> tuple[dict[str, pd.DataFrame], list[str]]:
    """The predictions of all runs by folder, and a line for each run that is left out.

    It leaves out files that cannot be used, and runs whose documents differ from most runs with the
    same data, encoding and variant (and the same seed if data.split_seed is the seed).
    """
    read, problems = {}, []
    same = [runs[name] for name in GROUP]
    if SPLIT_SEED in runs:
        same.append(runs["seed"].where(runs[SPLIT_SEED] == BY_RUN))
    for _, group in runs.groupby(same, sort=False, dropna=False):
        tables, documents = {}, {}
        for run in group.to_dict("records"):
            try:
                table = read_predictions(run)
            except InputError as error:
                problems.append(str(error))
                continue
            tables[run["folder"]] = table
            content = table[["index", "label", "length"]].to_numpy().tobytes()
            documents[run["folder"]] = hashlib.sha256(content).digest()
        most = Counter(documents.values()).most_common(1)
        for folder, table in tables.items():
            if documents[folder] == most[0][0]:
                read[folder] = table
            else:
                problems.append(
                    f"{folder}/{PREDICTIONS}: its documents are not those of the runs it is "
                    "compared with, so it is left out of the statistics over documents; remove it "
                    "to run again"
                )
    return read, problems


def frames_of(
    comparison: dict[Any, Any], runs: pd.DataFrame, baseline: str, read: dict[str, pd.DataFrame]
) -> tuple[list[Any], list[pd.DataFrame], list[pd.DataFrame]]:
    """The seeds of a row of `compare` whose two runs are both in `read`, by folder; and their
    frames, of the operator and of the baseline."""
    folder_of = runs.set_index([*CELL, "seed"])["folder"]
    place = (comparison["data"], comparison["encoding"])
    both = (
        (*place, comparison["fusion"], comparison["variant"]),
        (*place, baseline, comparison["baseline_variant"]),
    )
    seeds = [s for s in comparison["seeds"] if all(folder_of[*cell, s] in read for cell in both)]
    fused, base = ([read[folder_of[*cell, s]] for s in seeds] for cell in both)
    return seeds, fused, base


def pair(
    comparison: dict[Any, Any], runs: pd.DataFrame, baseline: str, read: dict[str, pd.DataFrame]
) -> Paired | None:
    """The predictions of a row of `compare`, for the seeds whose two runs are both in `read`.

    None if no seed is left, if the two operators have different documents, or if seeds have
    different numbers of documents.
    """
    seeds, fused, base = frames_of(comparison, runs, baseline, read)
    if not seeds:
        return None
    same = ["index", "length", "label"]
    of_base, of_fused = ([t[same] for t in ts] for ts in (base, fused))
    is_paired = all(one.equals(other) for one, other in zip(of_base, of_fused, strict=True))
    if not is_paired or len({len(one) for one in of_base}) > 1:
        return None
    predicted, by_baseline = (np.stack([t["predicted"] for t in ts]) for ts in (fused, base))
    length, label = (np.stack([one[name] for one in of_base]) for name in ("length", "label"))
    group = None
    if all(one.equals(of_base[0]) for one in of_base):
        length, label = length[0], label[0]  # all seeds have the same documents
        # Some of the files may come from a version without groups.
        group = min((t["group"] for t in (*fused, *base)), key=lambda g: g.nunique()).to_numpy()
    return Paired(seeds, length, label, predicted, by_baseline, group)


def judge_documents(paired: Paired) -> dict[str, Any]:
    """The keys of `judge_differences`, and p_mcnemar, one per seed."""
    correct, base_correct = (p == paired.label for p in (paired.predicted, paired.baseline))
    pairs = zip(correct, base_correct, strict=True)
    return {
        **judge_differences(paired.seeds, paired.difference, paired.group),
        "p_mcnemar": [over.p_mcnemar(a, b, paired.group) for a, b in pairs],
    }


def judge_differences(
    seeds: list[Any], difference: NDArray[np.float64], group: NDArray[Any] | None
) -> dict[str, Any]:
    """Statistics of one comparison over documents, from the difference of each seed and document,
    (S, D), and the documents' groups (D,).

    Keys: document_seeds, n_documents, n_groups; documents_mean, documents_low and documents_high
    (the mean difference and its 95 % interval by the hierarchical bootstrap), documents_low_90 and
    documents_high_90.
    """
    low, high = over.hierarchical_bootstrap(difference, groups=group)
    low_90, high_90 = over.hierarchical_bootstrap(difference, 0.9, groups=group)
    documents = difference.shape[1]
    return {
        "document_seeds": seeds,
        "n_documents": documents,
        "n_groups": documents if group is None else len(np.unique(group)),
        "documents_mean": float(difference.mean()),
        "documents_low": low,
        "documents_high": high,
        "documents_low_90": low_90,
        "documents_high_90": high_90,
    }


def by_length(paired: Paired, bins: int = BINS) -> pd.DataFrame:
    """The difference in accuracy by quantile of document length, one row per bin.

    Columns: shortest, longest and mean_length (tokens), n_documents, n (seeds), gains (a list, one
    per seed), mean, low and high (t interval), in points. If lengths repeat, there are fewer bins.
    """
    edges = np.unique(np.quantile(paired.length, np.linspace(0, 1, bins + 1)[1:-1]))
    lengths = np.broadcast_to(paired.length, paired.predicted.shape)
    which = np.searchsorted(edges, lengths, side="left")
    rows = []
    for b in np.unique(which):
        inside = which == b  # (S, D)
        length, per_seed = lengths[inside], inside.sum(1)
        if not per_seed.all():
            continue  # this seed's own documents have none of this length
        gains = (paired.difference * inside).sum(1) / per_seed
        low, high = st.t_interval(gains, resolution=100 / float(per_seed.mean()))
        row: dict[str, Any] = {"shortest": int(length.min()), "longest": int(length.max())}
        row |= {"mean_length": float(length.mean()), "n_documents": round(per_seed.mean())}
        row["n"] = len(gains)
        row |= {"gains": gains.tolist(), "mean": float(gains.mean()), "low": low, "high": high}
        rows.append(row)
    return pd.DataFrame(rows)


def confusion_difference(paired: Paired, n_classes: int) -> NDArray[np.float64]:
    """Confusion matrix of the fused operator minus the baseline's, (C, C), mean over seeds.

    Rows are the true class, in points of its documents; NaN where a class has no document.
    """
    label = np.broadcast_to(paired.label, paired.predicted.shape).ravel()
    classes = range(n_classes)
    fused, base = (
        confusion_matrix(label, predicted.ravel(), labels=classes)
        for predicted in (paired.predicted, paired.baseline)
    )
    with np.errstate(invalid="ignore"):
        return np.asarray(100 * (fused - base) / fused.sum(1, keepdims=True))


Confusions = dict[tuple[str, ...], NDArray[np.float64]]  # by the values of CELL


@dataclass(frozen=True)
class DocumentEvidence:
    """The statistics over documents of all comparisons. Keys are (data, encoding, fusion,
    variant)."""

    statistics: pd.DataFrame  # CELL and judge_documents, one row per comparison
    bins: pd.DataFrame  # CELL and by_length, one row per bin
    confusions: Confusions


def document_evidence(
    comparisons: pd.DataFrame, runs: pd.DataFrame, baseline: str
) -> tuple[DocumentEvidence, list[str]]:
    """These statistics for every comparison, and a line for each run that is left out."""
    read, notes = read_all(runs)
    rows, bins, confusions = [], [], {}
    for comparison in comparisons.to_dict("records"):
        labels = {name: comparison[name] for name in CELL}
        paired = pair(comparison, runs, baseline, read)
        if paired is None:
            continue
        rows.append({**labels, **judge_documents(paired)})
        bins.append(by_length(paired).assign(**labels))
        n_classes = int(max(paired.label.max(), paired.predicted.max(), paired.baseline.max())) + 1
        confusions[tuple(labels.values())] = confusion_difference(paired, n_classes)
    if not rows:
        empty = pd.DataFrame(columns=[*CELL, "document_seeds", "p_mcnemar"])
        return DocumentEvidence(empty, pd.DataFrame(columns=CELL), {}), notes
    all_bins = pd.concat(bins, ignore_index=True)
    return DocumentEvidence(pd.DataFrame(rows), all_bins, confusions), notes


def window_evidence(
    comparisons: pd.DataFrame, runs: pd.DataFrame, criteria: Criteria
) -> tuple[DocumentEvidence, list[str]]:
    """The statistics over windows of every comparison of language models, without bins and
    confusions; and a line for each run that is left out."""
    read, rows, problems = {}, [], []
    for run in runs.to_dict("records"):
        try:
            read[run["folder"]] = read_windows(run, criteria.metric)
        except InputError as error:
            problems.append(str(error))
    for comparison in comparisons.to_dict("records"):
        seeds, fused, base = frames_of(comparison, runs, criteria.baseline, read)
        if not seeds or not all(one["index"].equals(fused[0]["index"]) for one in (*fused, *base)):
            continue
        values, of_base = (np.stack([one["value"] for one in frames]) for frames in (fused, base))
        judged = judge_differences(seeds, values - of_base, fused[0]["group"].to_numpy())
        rows.append({**{name: comparison[name] for name in CELL}, **judged})
    statistics = pd.DataFrame(rows, columns=None if rows else CELL)
    return DocumentEvidence(statistics, pd.DataFrame(columns=CELL), {}), problems
