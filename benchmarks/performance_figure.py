"""docs/performance.svg: how many times as fast as the plain loop posfuse is."""

from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator, StrMethodFormatter

from headlines import CORPORA
from posfuse.report.figures.style import QUIET, RC
from stored import Result, Row

PANELS = {"Training": 3, "Evaluation": 5}  # columns of the training benchmark's first table
COLORS = {"exact": "#0072B2", "fast": "#D55E00"}
HEIGHT = 0.36  # of a bar; bars of a corpus are 1 apart


def draw(result: Result, path: Path) -> None:
    # Letters as paths look the same with all fonts.
    with mpl.rc_context({**RC, "svg.fonttype": "path"}):
        figure = Figure(figsize=(7.2, 2.3), layout="constrained")
        axes = figure.subplots(1, 2, sharex=True, sharey=True)
        for axis, (title, column) in zip(axes, PANELS.items(), strict=True):
            _bars(axis, result.rows(0), column)
            axis.set_title(title, loc="left")
        _scale(axes[0])
        figure.supxlabel("documents per second / the plain loop's", fontsize=RC["font.size"])
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside right center", frameon=False)
        figure.savefig(path, metadata={"Date": None})


def _bars(axis: Axes, rows: list[Row], column: int) -> None:
    """A bar for each corpus and each of posfuse's two settings; the plain loop is the line at 1."""
    corpora = list(dict.fromkeys(str(row[0]) for row in rows))
    for n, (system, color) in enumerate(COLORS.items()):
        ratios = [float(str(row[column])[:-1]) for row in rows if row[1] == system]
        places = [i + (n - 0.5) * HEIGHT for i in range(len(corpora))]
        lengths = [ratio - 1 for ratio in ratios]
        label = f"speed={system}"
        axis.barh(places, lengths, 0.92 * HEIGHT, left=1, color=color, label=label)
        for ratio, y in zip(ratios, places, strict=True):
            at = (max(ratio, 1), y)
            axis.annotate(f"{ratio:.3g}×", at, (3, 0), textcoords="offset points", va="center")
    axis.axvline(1, color=QUIET, linewidth=0.8)
    axis.set_yticks(range(len(corpora)), [CORPORA[name] for name in corpora])


def _scale(axis: Axes) -> None:
    """The axes of both panels: logarithmic, with room for the labels, the first corpus on top."""
    axis.set_xscale("log")
    axis.set_xlim(right=2.5 * axis.dataLim.x1)
    axis.xaxis.set_major_locator(LogLocator())
    axis.xaxis.set_major_formatter(StrMethodFormatter("{x:g}×"))
    axis.xaxis.set_minor_locator(NullLocator())
    axis.invert_yaxis()
