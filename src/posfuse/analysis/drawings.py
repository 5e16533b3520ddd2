"""All figures of a report, drawn and saved."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from posfuse.analysis.evidence.metric import ACCURACY
from posfuse.analysis.figures import figures, mechanism_figures
from posfuse.analysis.figures.length_figure import loss_by_position, results_by_length
from posfuse.analysis.figures.svg import save
from posfuse.analysis.figures.tuning_figure import budget, learning_rate, scale
from posfuse.analysis.findings import Findings
from posfuse.analysis.statistics.budget import budgets
from posfuse.analysis.statistics.comparisons import Criteria
from posfuse.runs.measurements import LOSS_BY_POSITION


@dataclass(frozen=True)
class Drawing:
    name: str
    svg: str  # matplotlib has escaped its texts, so it is safe inside a page
    caption: str


def draw_all(found: Findings, criteria: Criteria, folder: Path) -> list[Drawing]:
    """Write NAME.png and NAME.svg of each figure that has data into `folder`."""
    base, metric = criteria.baseline, criteria.metric
    comparisons, documents = found.comparisons, found.documents
    labels = dict(zip(found.runs["data"], found.runs["label_names"], strict=True))
    chance = {data: 100 / len(names) for data, names in labels.items() if names}
    name = metric.heading
    is_loss = found.mechanism["name"] == LOSS_BY_POSITION
    losses, mechanism = found.mechanism[is_loss], found.mechanism[~is_loss]
    # A pretrained model has other measurements than those of attention.
    attention = mechanism[mechanism["name"].astype(str).str.startswith("attention_")]
    # The function, its arguments (the first is its data) and the caption of each figure.
    every: list[tuple[Callable[..., Figure], tuple[Any, ...], str]] = [
        (scale, (found.own_best.along("scale"), metric), f"{name} by token scale: is an "
         "operator better, or does it only move the best scale?"),
        (learning_rate, (found.own_best.along("lr"), metric), f"{name} by learning rate."),
        (budget, (budgets(found.own_best.cells, metric), metric), "Tuning budget: the expected "
         f"best validation {metric.title} of k trials."),
        (figures.deltas, (comparisons, criteria),
         f"Paired differences to {base}; each mark is one seed."),
        (figures.forest, (comparisons, criteria), "Every comparison with its 95 % t interval; the "
         f"band is ±{criteria.within}, within which a difference does not matter."),
        (results_by_length, (found.by_test_length, chance if metric == ACCURACY else {}, metric),
         f"{name} by test length, inside and beyond the lengths of training."),
        (loss_by_position, (losses,),
         "The loss of a language model by the target's place: what a longer context is worth."),
        (mechanism_figures.patching, (mechanism,),
         "Which order predictions follow: that of the fused input, or that inside attention."),
        (mechanism_figures.probe_by_layer, (mechanism,),
         "How well a linear probe reads a token's place off each layer."),
        (mechanism_figures.attention_by_distance, (attention,),
         "Where attention looks: its weight by distance, against uniform attention."),
        (figures.accuracy_latency, (found.cells, metric), f"{name} and latency by fusion."),
        (figures.gain_by_length, (comparisons, documents.bins, criteria),
         "The gain by document length, across corpora and inside each corpus."),
        (figures.learning_curves, (found.curves, metric), f"Validation {metric.title} by epoch. "
         "The line is the mean over seeds, the band reaches from the lowest seed to the highest."),
        (figures.confusions, (documents.confusions, labels, base), "Confusion matrix minus that of "
         f"{base} in points, mean over seeds. Each row is a true class; its points are shares of "
         "its test documents."),
    ]  # fmt: skip
    return [
        Drawing(draw.__name__, save(draw(*data), folder, draw.__name__), caption)
        for draw, data, caption in every
        if len(data[0])
    ]
