"""Draw the paper's Figures 1 and 2 as schematics: `python docs/schematics.py [FOLDER]`.

Writes operators and local_gate as PNG and SVG, by default beside this file. The drawings are black
and white. One unit of a panel's coordinates is a fixed share of its width, so boxes keep their
shape.
"""

import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, Rectangle

Point = tuple[float, float]

RC: Any = {
    # A user's matplotlibrc must not change a drawing. The backend is pyplot's own setting.
    **{key: mpl.rcParamsDefault[key] for key in mpl.rcParamsDefault if key != "backend"},
    "mathtext.fontset": "stix",
    "svg.fonttype": "path",  # formulas look the same with all fonts
    "svg.hashsalt": "posfuse",
}
MAIN, NOTE, FORMULA = 10, 8, 11  # font sizes, points
SHADE = "0.9"  # of learned weights


def _panel(axis: Axes, title: str, height: float) -> None:
    """Coordinates from 0 to 10 across and 0 to `height` up, with equal units."""
    axis.set(xlim=(-0.1, 10.1), ylim=(0, height), aspect="equal")
    axis.set_axis_off()
    axis.text(0, height, title, fontsize=MAIN, fontweight="bold", va="top")


def _box(axis: Axes, at: Point, size: Point, text: str, learned: bool = False) -> None:
    """A box centred at `at`; grey if it contains learned weights."""
    corner = (at[0] - size[0] / 2, at[1] - size[1] / 2)
    color = SHADE if learned else "white"
    axis.add_patch(Rectangle(corner, *size, facecolor=color, edgecolor="black", linewidth=1))
    axis.text(*at, text, fontsize=MAIN, ha="center", va="center", linespacing=1.3)


def _arrow(axis: Axes, *points: Point) -> None:
    """A line through the points that ends in an arrow head."""
    axis.plot(*zip(*points[:-1], strict=True), color="black", linewidth=1)
    head: Any = {"arrowstyle": "-|>", "mutation_scale": 9, "shrinkA": 0, "shrinkB": 0}
    axis.add_patch(FancyArrowPatch(*points[-2:], color="black", linewidth=1, **head))


def _formula(axis: Axes, y: float, formula: str, source: str) -> None:
    axis.text(0, y, formula, fontsize=FORMULA, va="center")
    axis.text(10, y, source, fontsize=NOTE, va="center", ha="right")


def _inputs(axis: Axes) -> None:
    _box(axis, (0.8, 4.7), (1.6, 1), "$E$")
    _box(axis, (0.8, 2.1), (1.6, 1), "$P$")


def _add(axis: Axes) -> None:
    _panel(axis, "add", 6.2)
    _inputs(axis)
    _box(axis, (5, 3.4), (1, 1), "$+$")
    _box(axis, (9.2, 3.4), (1.6, 1), "$H$")
    _arrow(axis, (1.6, 4.7), (5, 4.7), (5, 3.9))
    _arrow(axis, (1.6, 2.1), (5, 2.1), (5, 2.9))
    _arrow(axis, (5.5, 3.4), (8.4, 3.4))
    _formula(axis, 0.9, "$H = E + P$", "eq. 1")


def _concat(axis: Axes) -> None:
    _panel(axis, "concat", 6.2)
    _inputs(axis)
    _box(axis, (3.6, 3.8), (1.5, 0.8), "$E$")
    _box(axis, (3.6, 3.0), (1.5, 0.8), "$P$")
    _box(axis, (6.4, 3.4), (1.9, 1.6), "$W$\n$d × 2d$", learned=True)
    _box(axis, (9.2, 3.4), (1.6, 1), "$H$")
    _arrow(axis, (1.6, 4.7), (3.6, 4.7), (3.6, 4.2))
    _arrow(axis, (1.6, 2.1), (3.6, 2.1), (3.6, 2.6))
    _arrow(axis, (4.35, 3.4), (5.45, 3.4))
    _arrow(axis, (7.35, 3.4), (8.4, 3.4))
    _formula(axis, 0.9, r"$H = W\,[E; P]$", "eq. 2")


def _gate(axis: Axes, gate: str) -> None:
    """E and P both make the gate, and are what it mixes."""
    _inputs(axis)
    _box(axis, (3.9, 3.4), (2.2, 1.4), gate, learned=True)
    _box(axis, (6.9, 3.4), (1.2, 1), "mix")
    _box(axis, (9.2, 3.4), (1.6, 1), "$H$")
    for y, side in ((4.7, 1), (2.1, -1)):
        _arrow(axis, (1.6, y), (6.9, y), (6.9, 3.4 + 0.5 * side))
        _arrow(axis, (3.9, y), (3.9, 3.4 + 0.7 * side))
        axis.plot([3.9], [y], color="black", marker="o", markersize=3)
    _arrow(axis, (5, 3.4), (6.3, 3.4))
    _arrow(axis, (7.5, 3.4), (8.4, 3.4))
    axis.text(5.55, 3.55, "$g_i$", fontsize=MAIN, ha="center", va="bottom")


def _gate_scalar(axis: Axes) -> None:
    _panel(axis, "gate_scalar: one gate a position", 6.2)
    _gate(axis, r"linear, $\sigma$")
    _formula(axis, 0.95, r"$g_i = \sigma(w^{\mathrm{T}}[E_i; P_i] + b)$", "eq. 3")
    _formula(axis, 0.15, r"$H_i = g_i\,E_i + (1 - g_i)\,P_i$", "eq. 4")


def _gate_mlp(axis: Axes) -> None:
    _panel(axis, "gate_mlp: one gate a feature", 6.2)
    _gate(axis, r"MLP, $\sigma$")
    _formula(axis, 0.95, r"$g_i = \sigma(\mathrm{MLP}([E_i; P_i]))$", "section 11.1, in words")
    _formula(axis, 0.15, r"$H_i = g_i \odot E_i + (1 - g_i) \odot P_i$", "as eq. 4, by feature")


def operators() -> Figure:
    """Figure 1: add, concat, the scalar gate and the MLP's gate, with their equations."""
    with mpl.rc_context(RC):
        figure = Figure((8.4, 5.9))
        figure.text(
            0.03, 0.965,
            "$E$: token embeddings, $L × d$      $P$: position table, its first $L$ rows, $L × d$"
            "      $H$: what the encoder reads, $L × d$      grey: learned",
            fontsize=NOTE, va="center",
        )  # fmt: skip
        for n, draw in enumerate((_add, _concat, _gate_scalar, _gate_mlp)):
            left, bottom = 0.03 + 0.5 * (n % 2), 0.5 - 0.46 * (n // 2)
            draw(figure.add_axes((left, bottom, 0.44, 0.4)))
    return figure


def local_gate() -> Figure:
    """Figure 2: Gate-CNN, whose gate reads a window of the position table only."""
    with mpl.rc_context(RC):
        figure = Figure((7.4, 5.2))
        axis = figure.add_axes((0.02, 0.02, 0.96, 0.95))
        _panel(axis, "gate_cnn: one gate a position, from the positions around it", 6.9)
        names = {-2: "$P_{i-K}$", -1: "…", 0: "$P_i$", 1: "…", 2: "$P_{i+K}$"}
        for n in range(-4, 5):
            at = 3.6 + 0.66 * n
            _box(axis, (at, 5.7), (0.66, 0.6), "$E_i$" if n == 0 else "")
            _box(axis, (at, 3.5), (0.66, 0.6), names.get(n, ""))
        axis.text(0.2, 5.7, "$E$", fontsize=MAIN, va="center")
        axis.text(0.2, 3.5, "$P$", fontsize=MAIN, va="center")
        _box(axis, (7.9, 4.6), (1, 1), "mix")
        _box(axis, (9.5, 4.6), (0.9, 0.6), "$H_i$")
        _arrow(axis, (3.6, 5.4), (3.6, 4.8), (7.4, 4.8))
        _arrow(axis, (3.6, 3.8), (3.6, 4.4), (7.4, 4.4))
        _arrow(axis, (8.4, 4.6), (9.05, 4.6))
        # The window's bracket.
        left, right = 3.6 - 2.5 * 0.66, 3.6 + 2.5 * 0.66
        axis.plot([left, left, right, right], [3.1, 3, 3, 3.1], color="black", linewidth=1)
        axis.text(3.8, 2.72, "the window, $2K + 1$ positions", fontsize=NOTE, va="center")
        _arrow(axis, (3.6, 3), (3.6, 2.4))
        summed = "depth-wise convolution with $w_{-K} … w_K$,\nsummed over the $d$ channels"
        _box(axis, (3.6, 1.95), (5.2, 0.9), summed, learned=True)
        _box(axis, (7.9, 1.95), (0.8, 0.8), r"$\sigma$")
        _arrow(axis, (6.2, 1.95), (7.5, 1.95))
        _arrow(axis, (7.9, 2.35), (7.9, 4.1))
        axis.text(8.05, 3.2, "$g_i$", fontsize=MAIN, va="center")
        window = r"$g_i = \sigma(\sum_{k=-K}^{K} w_k \cdot P_{i+k})$"
        _formula(axis, 0.85, window, "eq. 5, summed over the channels")
        _formula(axis, 0.2, r"$H_i = g_i\,E_i + (1 - g_i)\,P_i$", "eq. 6")
    return figure


DRAWINGS = {"operators": operators, "local_gate": local_gate}


def write(folder: Path) -> None:
    """<folder>/<name>.png and .svg of each drawing, the same bytes each time."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, draw in DRAWINGS.items():
        for kind, metadata in (("png", {"Software": None}), ("svg", {"Date": None})):
            with mpl.rc_context(RC):
                path = folder / f"{name}.{kind}"
                draw().savefig(path, dpi=150, facecolor="white", metadata=metadata)


if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
