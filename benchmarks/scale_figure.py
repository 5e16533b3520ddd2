"""docs/performance_scale.svg: how time and memory grow, from the tables of scale.py."""

from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, NullFormatter, StrMethodFormatter

from posfuse.report.figures.style import RC
from stored import Result

COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")
MEMORY = "peak memory GB"


def draw(result: Result, path: Path) -> None:
    """A column of panels for each table: seconds above, memory below."""
    tables = result.content["tables"]
    # Letters as paths look the same with all fonts.
    with mpl.rc_context({**RC, "svg.fonttype": "path"}):
        figure = Figure(figsize=(7.2, 3.6), layout="constrained")
        axes = figure.subplots(2, len(tables), sharex="col", sharey="row", squeeze=False)
        for (above, below), table in zip(axes.T, tables, strict=True):
            of, *columns = table["columns"]
            seconds = [name for name in columns if not name.endswith(MEMORY)]
            for name, color in zip(seconds, COLORS, strict=False):
                _line(above, table, name, color)
            _line(below, table, columns[-1], COLORS[0 if len(seconds) == 1 else 3])
            if len(seconds) > 1:
                place = {"loc": "lower center", "bbox_to_anchor": (0.5, 1.0), "ncols": 2}
                above.legend(frameon=False, handlelength=1, columnspacing=1, **place)
            below.set_xlabel(of)
            below.xaxis.set_major_formatter(EngFormatter(sep=""))  # 1k, 1M
            below.xaxis.set_minor_formatter(NullFormatter())
        axes[0, 0].set(yscale="log", ylabel="seconds")
        axes[0, 0].yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axes[1, 0].set(ylim=(0, None), ylabel=MEMORY)
        figure.savefig(path, metadata={"Date": None})


def _line(axis: Axes, table: dict, name: str, color: str) -> None:
    """The column against the table's first one; a cell without a number is left out."""
    column = table["columns"].index(name)
    points = [(row[0], row[column]) for row in table["rows"] if row[column] != ""]
    x, y = zip(*points, strict=True)
    label = name.removesuffix(" s")
    axis.plot(x, y, marker="o", markersize=2.5, linewidth=1, color=color, label=label)
    axis.set_xscale("log")
