"""A run's gates as a picture: by position and by the word's frequency."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

from posfuse.runs.records import Diagnostic

AXES = {"position": "position in the document", "frequency": "occurrences of the word in training"}


def gate_plot(rows: Sequence[Diagnostic], epoch: int) -> Image.Image | None:
    """Mean and spread of the gates after an epoch; None if the operator has no gates."""
    gates = [row for row in rows if row.epoch == epoch and row.name in ("gate_mean", "gate_std")]
    if not gates:
        return None
    figure = Figure(figsize=(8, 3), layout="constrained")
    canvas: Any = FigureCanvasAgg(figure)
    for axes, (by, label) in zip(figure.subplots(1, 2, sharey=True), AXES.items(), strict=True):
        values = {(row.name, row.low): row.value for row in gates if row.by == by}
        lows = sorted(low for name, low in values if name == "gate_mean")
        mean = [values["gate_mean", low] for low in lows]
        spread = [values["gate_std", low] for low in lows]
        axes.errorbar(lows, mean, spread, marker="o", capsize=2)
        axes.set_xscale("symlog", base=2 if by == "position" else 10, linthresh=1)
        axes.set_xlim(left=-0.5)
        axes.set(xlabel=label, ylim=(0, 1))
        axes.axhline(0.5, color="0.7", linewidth=0.6)
    figure.axes[0].set_ylabel("gate: share of the token")
    figure.suptitle(f"mean ± standard deviation of the gates, epoch {epoch}", fontsize=9)
    canvas.draw()
    return Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")
