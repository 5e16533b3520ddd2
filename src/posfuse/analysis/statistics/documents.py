"""What the saved predictions say beyond the mean: documents as well as seeds.

Shapes: S seeds, D test documents, C classes.
"""

import hashlib
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyarrow import ArrowException

from posfuse.analysis.evidence.collect import CELL, METRIC, SHARED
from posfuse.analysis.statistics import paired as st
from posfuse.errors import InputError
from posfuse.runs.records import PREDICTIONS, SUMS, is_whole

COLUMNS = ("index", "length", "label", "predicted")
BINS = 4  # quantiles of document length


@dataclass(frozen=True)
class Predictions:
    """One run's test documents, in the order of their index: arrays (D,)."""

    index: NDArray[Any]
    length: NDArray[Any]  # tokens, as far as the model reads
    label: NDArray[Any]
    predicted: NDArray[Any]

    @property
    def correct(self) -> NDArray[np.bool_]:
        return np.asarray(self.label == self.predicted)


def read_predictions(folder: str | Path) -> Predictions:
    """Raises InputError where the file is missing or damaged, lacks a column, or holds other than
    whole numbers from 0."""
    path = Path(folder) / PREDICTIONS
    if path.exists() and not is_whole(path):
        raise InputError(f"{path}: differs from its digest in {SUMS}; remove it to run again")
    try:
        table = pq.read_table(path, columns=list(COLUMNS))
        found = Predictions(*(table[name].to_numpy() for name in COLUMNS))
    except (OSError, ArrowException, KeyError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"{path}: not readable ({reason}); remove it to run again") from error
    for name in COLUMNS:
        column = getattr(found, name)
        if column.dtype.kind not in "iu" or not len(column) or column.min() < 0:
            raise InputError(
                f"{path}: {name} is not a whole number from 0 for each document; remove it to run "
                "again"
            )
    return found


def _of_run(run: dict[Any, Any]) -> Predictions:
    """A run's predictions, lengths cut at its max_len; InputError where its record says else."""
    found = read_predictions(run["folder"])
    path = Path(run["folder"]) / PREDICTIONS
    names = run.get("label_names")
    if isinstance(names, list) and max(found.label.max(), found.predicted.max()) >= len(names):
        raise InputError(f"{path}: more classes than result.json names; remove it to run again")
    accuracy = run.get(METRIC)
    if accuracy is not None and abs(found.correct.mean() - accuracy) > 1e-4:
        raise InputError(
            f"{path}: {100 * found.correct.mean():.2f} % are right, result.json says "
            f"{100 * accuracy:.2f} %; remove it to run again"
        )
    max_len = run.get("settings.data.max_len", np.inf)
    return replace(found, length=np.clip(found.length, 1, max_len).astype(np.int64))


@dataclass(frozen=True)
class Paired:
    """One comparison's predictions, the same documents for both operators of each seed."""

    seeds: list[Any]  # S
    length: NDArray[Any]  # (D,)
    label: NDArray[Any]  # (D,)
    predicted: NDArray[Any]  # (S, D)
    baseline: NDArray[Any]  # (S, D)

    @property
    def difference(self) -> NDArray[np.float64]:
        """Right fused minus right baseline, in points, (S, D): its mean is the difference in
        accuracy."""
        right = np.subtract(self.predicted == self.label, self.baseline == self.label, dtype=float)
        return np.asarray(100 * right)


def read_all(runs: pd.DataFrame) -> tuple[dict[str, Predictions], list[str]]:
    """The predictions of all runs by folder, and a line for each that is left out: what cannot be
    read, and runs whose documents are not those of most runs they would be compared with."""
    read, problems = {}, []
    for _, group in runs.groupby(SHARED, sort=False):
        found = {}
        for run in group.to_dict("records"):
            try:
                found[run["folder"]] = _of_run(run)
            except InputError as error:
                problems.append(str(error))
        documents = {folder: _documents(predictions) for folder, predictions in found.items()}
        most = Counter(documents.values()).most_common(1)
        for folder, predictions in found.items():
            if documents[folder] == most[0][0]:
                read[folder] = predictions
            else:
                problems.append(
                    f"{folder}/{PREDICTIONS}: its documents are not those of the runs it is "
                    "compared with, left out of the statistics over documents; remove it to run "
                    "again"
                )
    return read, problems


def _documents(predictions: Predictions) -> str:
    """A digest that is the same for predictions on the same documents."""
    digest = hashlib.sha256()
    for column in (predictions.index, predictions.label, predictions.length):
        digest.update(column.astype(np.int64).tobytes())
    return digest.hexdigest()


def pair(
    comparison: dict[Any, Any], runs: pd.DataFrame, baseline: str, read: dict[str, Predictions]
) -> Paired | None:
    """The predictions of a row of `compare`, on the seeds whose runs are both in `read`; None
    without any."""
    folder_of = runs.set_index([*CELL, "seed"])["folder"]
    place = (comparison["data"], comparison["encoding"])
    both = (
        (*place, comparison["fusion"], comparison["variant"]),
        (*place, baseline, comparison["baseline_variant"]),
    )
    seeds = [s for s in comparison["seeds"] if all(folder_of[*cell, s] in read for cell in both)]
    if not seeds:
        return None
    fused, base = ([read[folder_of[*cell, s]] for s in seeds] for cell in both)
    if _documents(fused[0]) != _documents(base[0]):
        return None
    predicted, by_baseline = (np.stack([p.predicted for p in ps]) for ps in (fused, base))
    return Paired(seeds, base[0].length, base[0].label, predicted, by_baseline)


def judge_documents(paired: Paired) -> dict[str, Any]:
    """document_seeds, n_documents, documents_mean, and of that mean the interval of the
    hierarchical bootstrap, in points; McNemar's p for each seed."""
    low, high = st.hierarchical_bootstrap(paired.difference)
    right, base_right = (p == paired.label for p in (paired.predicted, paired.baseline))
    return {
        "document_seeds": paired.seeds,
        "n_documents": len(paired.label),
        "documents_mean": float(paired.difference.mean()),
        "documents_low": low,
        "documents_high": high,
        "p_mcnemar": [st.p_mcnemar(a, b) for a, b in zip(right, base_right, strict=True)],
    }


def by_length(paired: Paired, bins: int = BINS) -> pd.DataFrame:
    """The difference in accuracy by quantile of document length, a row a bin.

    Columns: shortest, longest and mean_length (tokens), n_documents, n (seeds), gains (a list, a
    seed each), mean, low and high (t interval), in points. Fewer bins where lengths repeat.
    """
    edges = np.unique(np.quantile(paired.length, np.linspace(0, 1, bins + 1)[1:-1]))
    which = np.searchsorted(edges, paired.length, side="left")
    rows = []
    for b in np.unique(which):
        inside = which == b
        length = paired.length[inside]
        gains = paired.difference[:, inside].mean(1)
        low, high = st.t_interval(gains)
        rows.append(
            {
                "shortest": int(length.min()),
                "longest": int(length.max()),
                "mean_length": float(length.mean()),
                "n_documents": int(inside.sum()),
                "n": len(gains),
                "gains": gains.tolist(),
                "mean": float(gains.mean()),
                "low": low,
                "high": high,
            }
        )
    return pd.DataFrame(rows)


def confusion_difference(paired: Paired, n_classes: int) -> NDArray[np.float64]:
    """Confusion matrix of the fused operator minus the baseline's, (C, C): rows are the true
    class, in points of its documents, mean over seeds; NaN where a class has no document."""
    matrices = [
        np.stack([_confusion(paired.label, p, n_classes) for p in predicted]).mean(0)
        for predicted in (paired.predicted, paired.baseline)
    ]
    with np.errstate(invalid="ignore"):
        share = [100 * m / m.sum(1, keepdims=True) for m in matrices]
    return np.asarray(share[0] - share[1])


def _confusion(label: NDArray[Any], predicted: NDArray[Any], n_classes: int) -> NDArray[Any]:
    cells = np.bincount(label.astype(np.int64) * n_classes + predicted, minlength=n_classes**2)
    return cells.reshape(n_classes, n_classes)


Confusions = dict[tuple[str, ...], NDArray[np.float64]]  # by the values of CELL


@dataclass(frozen=True)
class DocumentEvidence:
    """What the predictions add to the comparisons; keys are (data, encoding, fusion, variant)."""

    statistics: pd.DataFrame  # CELL and judge_documents, a row a comparison
    bins: pd.DataFrame  # CELL and by_length, a row a bin
    confusions: Confusions


def document_evidence(
    comparisons: pd.DataFrame, runs: pd.DataFrame, baseline: str
) -> tuple[DocumentEvidence, list[str]]:
    """Everything above for every comparison, and a line for all that is left out."""
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
    return DocumentEvidence(
        pd.DataFrame(rows)
        if rows
        else pd.DataFrame(columns=[*CELL, "document_seeds", "p_mcnemar"]),
        pd.concat(bins, ignore_index=True) if bins else pd.DataFrame(columns=CELL),
        confusions,
    ), notes
