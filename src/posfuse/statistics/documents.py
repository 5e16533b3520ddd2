"""Statistics of the saved predictions, over documents and seeds.

Shapes: S seeds, D test documents (for a language model windows or strings), C classes. Documents
that share a part are a group. They are resampled together, because they are often classified alike.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.metrics import confusion_matrix

from posfuse.errors import InputError
from posfuse.evidence.collect import CELL, GROUP
from posfuse.evidence.metric import Metric
from posfuse.evidence.saved import read_predictions, read_windows
from posfuse.runs.records import PREDICTIONS
from posfuse.runs.seeds import BY_RUN
from posfuse.statistics import over_documents as over
from posfuse.statistics import paired as st

SPLIT_SEED = "settings.data.split_seed"
BINS = 4  # quantiles of document length
Confusions = dict[tuple[str, ...], NDArray[np.float64]]  # by the values of CELL
Read = Callable[[dict[Any, Any]], pd.DataFrame]  # a row of `collect` -> its documents


@dataclass(frozen=True)
class Paired:
    """The documents of one comparison: both operators with each seed, on the same documents."""

    seeds: list[Any]  # S
    fused: list[pd.DataFrame]  # S frames of D documents: index, group, value
    base: list[pd.DataFrame]  # of classifiers also length, label and predicted
    group: NDArray[Any] | None = None  # (D,); None: each seed has its own documents

    @property
    def difference(self) -> NDArray[np.float64]:
        """The value fused minus baseline, (S, D); its mean is the difference of the metric."""
        return np.asarray(_of_all(self.fused, "value") - _of_all(self.base, "value"))


def _of_all(frames: list[pd.DataFrame], column: str) -> NDArray[Any]:
    return np.stack([frame[column] for frame in frames])


def _documents(frame: pd.DataFrame) -> pd.DataFrame:
    """The columns that are equal for two runs on the same documents."""
    return frame[[name for name in ("index", "length", "label") if name in frame]]


def read_all(
    runs: pd.DataFrame, read: Read = read_predictions
) -> tuple[dict[str, pd.DataFrame], list[str]]:
    """What `read` returns for each run by folder, and a line for each run that is left out.

    It leaves out files that cannot be used, and runs whose documents differ from most runs with the
    same data, encoding and variant (and the same seed if data.split_seed is the seed).
    """
    files, problems = {}, []
    same = [runs[name] for name in GROUP]
    if SPLIT_SEED in runs:
        same.append(runs["seed"].where(runs[SPLIT_SEED] == BY_RUN))
    for _, group in runs.groupby(same, sort=False, dropna=False):
        tables = {}
        for run in group.to_dict("records"):
            try:
                tables[run["folder"]] = read(run)
            except InputError as error:
                problems.append(str(error))
        documents = {key: _documents(table).to_numpy().tobytes() for key, table in tables.items()}
        most = Counter(documents.values()).most_common(1)
        for folder, table in tables.items():
            if documents[folder] == most[0][0]:
                files[folder] = table
            else:
                problems.append(
                    f"{folder}/{PREDICTIONS}: its documents are not those of the runs it is "
                    "compared with, so it is left out of the statistics over documents; remove it "
                    "to run again"
                )
    return files, problems


def pair(
    comparison: dict[Any, Any], runs: pd.DataFrame, baseline: str, files: dict[str, pd.DataFrame]
) -> Paired | None:
    """The documents of a row of `compare`, for the seeds whose two runs are both in `files`.

    None if no seed is left, if the two operators have different documents, or if seeds have
    different numbers of documents.
    """
    folder_of = runs.set_index([*CELL, "seed"])["folder"]
    place = (comparison["data"], comparison["encoding"])
    both = (
        (*place, comparison["fusion"], comparison["variant"]),
        (*place, baseline, comparison["baseline_variant"]),
    )
    seeds = [s for s in comparison["seeds"] if all(folder_of[*cell, s] in files for cell in both)]
    if not seeds:
        return None
    fused, base = ([files[folder_of[*cell, s]] for s in seeds] for cell in both)
    same = [_documents(frame) for frame in base]
    if len(set(map(len, same))) > 1 or not all(
        map(pd.DataFrame.equals, same, map(_documents, fused))
    ):
        return None
    is_one_test = all(one.equals(same[0]) for one in same)
    return Paired(seeds, fused, base, base[0]["group"].to_numpy() if is_one_test else None)


def judge_documents(paired: Paired) -> dict[str, Any]:
    """Statistics of one comparison over documents.

    Keys: document_seeds, n_documents, n_groups; documents_mean, documents_low and documents_high
    (the mean difference and its 95 % interval by the hierarchical bootstrap), documents_low_90 and
    documents_high_90; of classifiers also p_mcnemar, one per seed.
    """
    difference, group = paired.difference, paired.group
    low, high = _interval(paired)
    low_90, high_90 = _interval(paired, 0.9)
    documents = difference.shape[1]
    row = {
        "document_seeds": paired.seeds,
        "n_documents": documents,
        "n_groups": documents if group is None else len(np.unique(group)),
        "documents_mean": float(difference.mean()),
        "documents_low": low,
        "documents_high": high,
        "documents_low_90": low_90,
        "documents_high_90": high_90,
    }
    if "label" in paired.base[0]:
        pairs = zip(paired.fused, paired.base, strict=True)
        row["p_mcnemar"] = [
            over.p_mcnemar(a["value"] > 0, b["value"] > 0, b["group"]) for a, b in pairs
        ]
    return row


def _interval(paired: Paired, level: float = 0.95) -> st.Interval:
    """The interval of the hierarchical bootstrap. If all seeds have the same difference, the
    bootstrap has no spread over seeds, and the t interval with the resolution of one document is
    included. Other values than counts of documents have no interval then."""
    low, high = over.hierarchical_bootstrap(paired.difference, level, groups=paired.group)
    means = paired.difference.mean(1)
    if len(means) < 2 or np.ptp(means) > 1e-9 * np.abs(means).max():
        return low, high
    resolution = 100 / paired.difference.shape[1] if "label" in paired.base[0] else np.nan
    of_seeds = st.t_interval(means, level, resolution)
    return float(np.minimum(low, of_seeds[0])), float(np.maximum(high, of_seeds[1]))


def by_length(paired: Paired, bins: int = BINS) -> pd.DataFrame:
    """The difference in accuracy by quantile of document length, one row per bin.

    Columns: shortest, longest and mean_length (tokens), n_documents, n (seeds), gains (a list, one
    per seed), mean, low and high (t interval), in points. If lengths repeat, there are fewer bins.
    """
    lengths = _of_all(paired.base, "length")
    every = lengths if paired.group is None else lengths[0]
    edges = np.unique(np.quantile(every, np.linspace(0, 1, bins + 1)[1:-1]))
    which = np.searchsorted(edges, lengths, side="left")
    rows = []
    for b in np.unique(which):
        inside = which == b  # (S, D)
        length, per_seed = lengths[inside], inside.sum(1)
        if not per_seed.all():
            continue  # this seed's own documents have none of this length
        gains = (paired.difference * inside).sum(1) / per_seed
        low, high = st.t_interval(gains, resolution=100 / float(per_seed.mean()))
        rows.append(
            {
                "shortest": int(length.min()),
                "longest": int(length.max()),
                "mean_length": float(length.mean()),
                "n_documents": round(per_seed.mean()),
                "n": len(gains),
                "gains": gains.tolist(),
                "mean": float(gains.mean()),
                "low": low,
                "high": high,
            }
        )
    return pd.DataFrame(rows)


def confusion_difference(paired: Paired) -> NDArray[np.float64]:
    """Confusion matrix of the fused operator minus the baseline's, (C, C), mean over seeds.

    Rows are the true class, in points of its documents; NaN where a class has no document.
    """
    fused, base = pd.concat(paired.fused), pd.concat(paired.base)
    both = pd.concat([fused, base])
    classes = range(both[["label", "predicted"]].to_numpy().max() + 1)
    of_fused, of_base = (
        confusion_matrix(frame["label"], frame["predicted"], labels=classes)
        for frame in (fused, base)
    )
    with np.errstate(invalid="ignore"):
        return np.asarray(100 * (of_fused - of_base) / of_fused.sum(1, keepdims=True))


@dataclass(frozen=True)
class DocumentEvidence:
    """The statistics over documents of all comparisons. Those of language models have no bins and
    confusions."""

    statistics: pd.DataFrame  # CELL and judge_documents, one row per comparison
    bins: pd.DataFrame  # CELL and by_length, one row per bin
    confusions: Confusions


def document_evidence(
    comparisons: pd.DataFrame, runs: pd.DataFrame, baseline: str, metric: Metric | None = None
) -> tuple[DocumentEvidence, list[str]]:
    """These statistics for every comparison, and a line for each run that is left out. `metric` is
    that of language models; None: the runs are classifiers, compared by accuracy."""
    read: Read = partial(read_windows, metric=metric) if metric else read_predictions
    files, notes = read_all(runs, read)
    rows, bins, confusions = [], [], {}
    for comparison in comparisons.to_dict("records"):
        labels = {name: comparison[name] for name in CELL}
        paired = pair(comparison, runs, baseline, files)
        if paired is None:
            continue
        rows.append({**labels, **judge_documents(paired)})
        if metric is None:
            bins.append(by_length(paired).assign(**labels))
            confusions[tuple(labels.values())] = confusion_difference(paired)
    statistics = pd.DataFrame(rows, columns=None if rows else [*CELL, "document_seeds"])
    all_bins = pd.concat(bins, ignore_index=True) if bins else pd.DataFrame(columns=CELL)
    return DocumentEvidence(statistics, all_bins, confusions), notes
