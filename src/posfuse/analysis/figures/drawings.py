"""All figures of a report, drawn and saved."""

from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from posfuse.analysis.figures import figures
from posfuse.analysis.figures.scale_figure import scale
from posfuse.analysis.figures.style import save
from posfuse.analysis.statistics.comparisons import Criteria
from posfuse.analysis.statistics.documents import DocumentEvidence


@dataclass(frozen=True)
class Drawing:
    name: str
    svg: str  # safe inside a page: matplotlib has escaped the texts
    caption: str


def draw_all(
    cells: pd.DataFrame,
    comparisons: pd.DataFrame,
    scales: pd.DataFrame,
    documents: DocumentEvidence,
    curves: pd.DataFrame,
    label_names: dict[str, list[str]],
    criteria: Criteria,
    folder: Path,
) -> list[Drawing]:
    """Write NAME.png and NAME.svg of each figure that has data into `folder`."""
    drawings = []

    def add(name: str, figure: Figure, caption: str) -> None:
        drawings.append(Drawing(name, save(figure, folder, name), caption))

    base = criteria.baseline
    if len(scales):
        add(
            "scale",
            scale(scales),
            "Accuracy over the token scale: does an operator gain, or only move the best scale?",
        )
    if len(comparisons):
        add(
            "deltas",
            figures.deltas(comparisons, base),
            f"Paired differences to {base}: a mark is one seed.",
        )
        add(
            "forest",
            figures.forest(comparisons, criteria),
            f"Every comparison with its 95 % t interval; the band is ±{criteria.margin:g} points, "
            "within which a difference does not matter.",
        )
    add("accuracy_latency", figures.accuracy_latency(cells), "Accuracy and latency by fusion.")
    if len(comparisons):
        add(
            "gain_by_length",
            figures.gain_by_length(comparisons, documents.bins, base),
            "The gain against document length, across corpora and inside each.",
        )
    if len(curves):
        add(
            "learning_curves",
            figures.learning_curves(curves),
            "Validation accuracy by epoch: the line is the mean over seeds, the band runs from the "
            "worst seed to the best.",
        )
    if documents.confusions:
        add(
            "confusions",
            figures.confusions(documents.confusions, label_names, base),
            f"Confusion matrix minus that of {base}: rows are the true class, in points of its "
            "test documents, mean over seeds.",
        )
    return drawings
