"""All figures of a report, drawn and saved."""

from dataclasses import dataclass
from pathlib import Path

from posfuse.analysis.figures import figures
from posfuse.analysis.figures.scale_figure import scale
from posfuse.analysis.figures.svg import save
from posfuse.analysis.findings import Findings
from posfuse.analysis.statistics.comparisons import Criteria


@dataclass(frozen=True)
class Drawing:
    name: str
    svg: str  # matplotlib has escaped its texts, so it is safe inside a page
    caption: str


def draw_all(found: Findings, criteria: Criteria, folder: Path) -> list[Drawing]:
    """Write NAME.png and NAME.svg of each figure that has data into `folder`."""
    base, comparisons, documents = criteria.baseline, found.comparisons, found.documents
    drawn = {}
    if len(found.scales.cells):
        drawn["scale"] = (
            scale(found.scales.cells),
            "Accuracy by token scale: does an operator gain accuracy, or only move the best scale?",
        )
    if len(comparisons):
        drawn["deltas"] = (
            figures.deltas(comparisons, base),
            f"Paired differences to {base}; each mark is one seed.",
        )
        drawn["forest"] = (
            figures.forest(comparisons, criteria),
            f"Every comparison with its 95 % t interval; the band is ±{criteria.margin:g} points, "
            "within which a difference does not matter.",
        )
    latency = figures.accuracy_latency(found.cells)
    drawn["accuracy_latency"] = (latency, "Accuracy and latency by fusion.")
    if len(comparisons):
        drawn["gain_by_length"] = (
            figures.gain_by_length(comparisons, documents.bins, base),
            "The gain by document length, across corpora and inside each corpus.",
        )
    if len(found.curves):
        drawn["learning_curves"] = (
            figures.learning_curves(found.curves),
            "Validation accuracy by epoch. The line is the mean over seeds, the band reaches "
            "from the lowest seed to the highest.",
        )
    if documents.confusions:
        labels = dict(zip(found.runs["data"], found.runs["label_names"], strict=True))
        drawn["confusions"] = (
            figures.confusions(documents.confusions, labels, base),
            f"Confusion matrix minus that of {base} in points, mean over seeds. Each row is a true "
            "class; its points are shares of its test documents.",
        )
    return [
        Drawing(name, save(figure, folder, name), text) for name, (figure, text) in drawn.items()
    ]
