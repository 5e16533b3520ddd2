"""All figures of a report, drawn and saved."""

from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from posfuse.analysis.figures import figures
from posfuse.analysis.figures.scale_figure import scale
from posfuse.analysis.figures.svg import save
from posfuse.analysis.statistics.comparisons import Criteria
from posfuse.analysis.statistics.documents import DocumentEvidence


@dataclass(frozen=True)
class Drawing:
    name: str
    svg: str  # matplotlib has escaped its texts, so it is safe inside a page
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
            "Accuracy by token scale: does an operator gain accuracy, or only move the best scale?",
        )
    if len(comparisons):
        add(
            "deltas",
            figures.deltas(comparisons, base),
            f"Paired differences to {base}; each mark is one seed.",
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
            "The gain by document length, across corpora and inside each corpus.",
        )
    if len(curves):
        add(
            "learning_curves",
            figures.learning_curves(curves),
            "Validation accuracy by epoch. The line is the mean over seeds, the band reaches "
            "from the lowest seed to the highest.",
        )
    if documents.confusions:
        add(
            "confusions",
            figures.confusions(documents.confusions, label_names, base),
            f"Confusion matrix minus that of {base} in points, mean over seeds. Each row is a true "
            "class; its points are shares of its test documents.",
        )
    return drawings
