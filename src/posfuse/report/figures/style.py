"""The style of every figure, and the layout of its panels and labels."""

import textwrap
import warnings
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any, NamedTuple, ParamSpec

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Text
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import isotonic_regression

P = ParamSpec("P")
QUIET = "0.45"  # the grey of lines and texts that are not data
SMALL = 8  # font size of labels, points
CAPTION = 9

RC: Any = {
    # A user's matplotlibrc must not change a report. pyplot sets the backend.
    **{key: mpl.rcParamsDefault[key] for key in mpl.rcParamsDefault if key != "backend"},
    "text.parse_math": False,  # names of the user's operators may contain $ or _
    "svg.fonttype": "none",
    "svg.hashsalt": "posfuse",
    "figure.dpi": 150,  # the widths of names are measured as the PNG files have them
    "font.size": SMALL,
    "axes.titlesize": SMALL,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "lines.linewidth": 1.2,
    "lines.markersize": 4.5,
}


class Look(NamedTuple):
    """An operator's colour, marker and dashes; no two operators of LOOKS share any of them."""

    color: str
    marker: Any  # any marker of matplotlib
    dash: Any


# Okabe-Ito hues, changed so that the lightness (CIE L*) of any two operators differs by over 2.7.
LOOKS = {
    "add": Look("#000000", "o", "-"),
    "concat": Look("#0072B2", "s", (0, (5, 1.5))),
    "gate_scalar_linear_start": Look("#9C6B00", (3, 1, 0), (0, (4, 1, 4, 3))),
    "gate_scalar": Look("#EBA91A", "^", (0, (4, 1, 1, 1))),
    "gate_feature_linear_start": Look("#C9805E", (4, 1, 45), (0, (1, 3))),
    "gate_feature": Look("#8C2D04", "D", (0, (1, 1))),
    "gate_cnn_linear_start": Look("#00482F", (3, 1, 180), (0, (9, 2, 1, 2))),
    "gate_cnn": Look("#009E73", "v", (0, (9, 2))),
    "gate_mlp_linear_start": Look("#9F3F7B", (6, 1, 0), (0, (6, 3))),
    "gate_mlp": Look("#D486B2", "P", (0, (6, 1, 1, 1, 1, 1))),
    "mlp": Look("#D55E00", "X", (0, (2, 1))),
    "mul": Look("#56B4E9", (4, 1, 0), (0, (8, 2, 2, 2))),
    "none": Look("#BDBDBD", "*", (0, (1, 2))),
    "gate_constant": Look("#333333", "<", (0, (4, 2, 1, 2))),
    "add_scaled": Look("#2A5F7F", ">", (0, (3, 3))),
    "linear": Look("#5E2D8A", (8, 1, 0), (0, (7, 2))),
    "add_matched": Look("#B9D160", (3, 1, 90), (0, (2, 3))),
}
# Of the verdicts of hypotheses, in the colours of the page's badges (page.css).
VERDICTS = {
    "supported": Look("#0063A0", "o", "-"),
    "refuted": Look("#A84300", "X", "-"),
    "equivalent": Look("#00664D", "s", "-"),
    "undecided": Look("#8C8C8C", "D", "-"),
}
# Marker, and colour with dashes, of other operators; a hash of the name chooses them.
MORE_MARKERS = "phd8"
MORE_LINES = [
    ("#6A3D9A", (0, (7, 1, 3, 1))),
    ("#7A7A00", (0, (2, 2, 6, 2))),
    ("#17A2B8", (0, (5, 3))),
    ("#7B1FA2", (0, (1, 1, 4, 1))),
    ("#A08060", (0, (3, 1))),
]


def look(fusion: str) -> Look:
    """The look of an operator, or of a verdict in its place. It depends only on the name, so it is
    the same in every report."""
    if known := LOOKS.get(fusion) or VERDICTS.get(fusion):
        return known
    marker, line = divmod(zlib.crc32(fusion.encode()) % 20, 5)
    return Look(MORE_LINES[line][0], MORE_MARKERS[marker], MORE_LINES[line][1])


@contextmanager
def rc_style() -> Iterator[None]:
    """Use the rcParams of the figures, and ignore two warnings about long or foreign names."""
    with mpl.rc_context(RC), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")
        warnings.filterwarnings("ignore", "constrained_layout not applied")
        yield


def styled(draw: Callable[P, Figure]) -> Callable[P, Figure]:
    """Decorate a function that draws a figure: apply the style and place the labels."""

    @wraps(draw)
    def inside(*args: P.args, **kwargs: P.kwargs) -> Figure:
        with rc_style():
            return settle(draw(*args, **kwargs))

    return inside


def settle(figure: Figure) -> Figure:
    """Lay out the figure once, then separate the names at the ends of the lines."""
    FigureCanvasAgg(figure)
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    for axis in figure.axes:
        names = [t for t in axis.texts if isinstance(t, LineName)]
        if not names:
            continue
        to_axes = axis.transData + axis.transAxes.inverted()
        ends = np.array([to_axes.transform(name.end) for name in names]).clip(0, 1)  # a line is cut
        height = 72 / figure.dpi * axis.get_window_extent().height
        for name, end, y in zip(names, ends, apart(ends[:, 1], 1.2 * SMALL / height), strict=True):
            one = look(name.fusion)
            name.set_position((name.get_position()[0], y))
            joint: Any = {"color": one.color, "transform": axis.transAxes, "clip_on": False}
            axis.add_artist(Line2D([end[0], 1.03], [end[1], y], linewidth=0.5, **joint))
            axis.add_artist(Line2D([1.055], [y], marker=one.marker, markersize=3.5, **joint))
    return figure


def apart(places: ArrayLike, gap: float) -> NDArray[np.float64]:
    """Places (n,) -> the nearest places (n,) with at least `gap` between them. The new places are
    between 0 and 1 if they fit."""
    y = np.asarray(places, dtype=float)
    order = np.argsort(y, kind="stable")
    steps = gap * np.arange(len(y))
    first = isotonic_regression(y[order] - steps).x
    moved = np.empty_like(y)
    moved[order] = np.clip(first, 0, max(0.0, 1 - gap * (len(y) - 1))) + steps
    return moved


class LineName(Text):
    """An operator's name to the right of the panel; `settle` moves it and draws its marker."""

    def __init__(self, axis: Axes, end: tuple[float, float], fusion: str) -> None:
        super().__init__(1.09, 0.5, operator_name(fusion), color="0.1", va="center", fontsize=SMALL)
        self.end, self.fusion = end, fusion
        self.set_transform(axis.transAxes)
        axis.add_artist(self)
        self.set_clip_on(False)


def operator_name(fusion: str) -> str:
    return short(fusion.replace("_linear_start", ", linear"), 20)


def short(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def wrap(texts: Sequence[str], inches: float, size: float = SMALL) -> str:
    """The texts, each on a new line; lines break at a width of `inches`."""
    characters = max(8, int(inches * 72 / (0.62 * size)))
    return "\n".join(textwrap.fill(text, characters) for text in texts if text)


def grid(
    groups: Sequence[int],
    titles: Iterable[Sequence[Any]],
    caption: str,
    size: tuple[float, float],
    most: int = 4,
    ratios: Any = (1,),
) -> tuple[Figure, list[list[Axes]]]:
    """A figure of panels in rows of at most `most`; `size` is a panel's, in inches.

    `groups` contains the number of panels of each group. Each group starts a row, unless every
    group has one panel. A panel is a list of axes below each other with the heights `ratios`. Its
    title has a line for each text that is not empty. The third text, the overrides of the runs, is
    left out if all panels have the same overrides.
    """
    titles = [list(map(str, title)) for title in titles]
    if len({tuple(title[2:]) for title in titles}) == 1:
        titles = [title[:2] for title in titles]
    if all(n == 1 for n in groups):
        groups = [len(groups)]
    columns = max(min(most, n) for n in groups)
    places, row = [], 0
    for n in groups:
        places += [(row + i // columns, i % columns) for i in range(n)]
        row += -(-n // columns)
    width = max(columns * size[0], 4.2)
    text = wrap([caption], width - 0.2, CAPTION)
    height = row * size[1] + 0.2 * (text.count("\n") + 1)
    figure = Figure((width, height), layout="constrained")
    figure.suptitle(text, x=0.01, ha="left", fontsize=CAPTION)
    cells = figure.add_gridspec(row * len(ratios), columns, height_ratios=list(ratios) * row)
    panels = [
        [figure.add_subplot(cells[r * len(ratios) + k, c]) for k in range(len(ratios))]
        for r, c in places
    ]
    for title, panel in zip(titles, panels, strict=True):
        panel[0].set_title(wrap(title, width / columns - 0.75), loc="left")
    return figure, panels
