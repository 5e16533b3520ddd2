"""All figures of a report, drawn and saved."""

from pathlib import Path

import pandas as pd

from posfuse.analysis.figures import figures
from posfuse.analysis.figures.figure_style import save
from posfuse.analysis.figures.scale_figure import scale
from posfuse.analysis.page import PageFigure
from posfuse.analysis.statistics.comparisons import Criteria
from posfuse.analysis.statistics.documents import Confusions, DocumentEvidence


def draw_all(
    cells: pd.DataFrame,
    comparisons: pd.DataFrame,
    scales: pd.DataFrame,
    documents: DocumentEvidence,
    curves: pd.DataFrame,
    label_names: dict[str, list[str]],
    criteria: Criteria,
    folder: Path,
) -> list[PageFigure]:
    """Write NAME.png and NAME.svg of each figure into `folder`; what has no data is left out."""
    base = criteria.baseline
    drawn = {
        "accuracy_latency": (figures.accuracy_latency(cells), "Accuracy and latency by fusion.")
    }
    if len(comparisons):
        drawn = {
            "deltas": (
                figures.deltas(comparisons, base),
                f"Paired differences to {base}: a mark is one seed.",
            ),
            "forest": (
                figures.forest(comparisons, criteria),
                f"Every comparison with its 95 % t interval; the band is ±{criteria.margin:g} "
                "points, within which a difference does not matter.",
            ),
            **drawn,
            "gain_by_length": (
                figures.gain_by_length(comparisons, documents.bins, base),
                "The gain against document length, across corpora and inside each.",
            ),
        }
    if len(scales):
        found = (
            scale(scales),
            "Accuracy over the token scale: does an operator gain, or only move the best scale?",
        )
        drawn = {"scale": found, **drawn}
    if len(curves):
        drawn["learning_curves"] = (
            figures.learning_curves(curves),
            "Validation accuracy by epoch: the line is the mean over seeds, the band runs from "
            "the worst seed to the best.",
        )
    if documents.confusions:
        drawn["confusions"] = (
            figures.confusions(_of_every_corpus(documents.confusions), label_names, base),
            f"Confusion matrix minus that of {base}: rows are the true class, in points of its "
            "test documents, mean over seeds.",
        )
    return [
        PageFigure(name, save(figure, folder, name), caption)
        for name, (figure, caption) in drawn.items()
    ]


def _of_every_corpus(confusions: Confusions) -> Confusions:
    """In an order that takes one comparison of each corpus in turn: not all of them are drawn."""
    turns: dict[str, int] = {}
    order = []
    for key in confusions:
        turns[key[0]] = turns.get(key[0], 0) + 1
        order.append((turns[key[0]], key))
    chosen = {key for _, key in sorted(order, key=lambda pair: pair[0])[: figures.MOST_HEATMAPS]}
    rest = [key for key in confusions if key not in chosen]
    return {key: confusions[key] for key in [*(k for k in confusions if k in chosen), *rest]}
