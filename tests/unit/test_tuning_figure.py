"""The figures of accuracy over a tuned key: every mark is at its value and no labels touch."""

import xml.etree.ElementTree as ET
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest

from posfuse.report.figures.style import LOOKS, LineName
from posfuse.report.figures.svg import TITLE, save
from posfuse.report.sections.own_values import scale

pytestmark = pytest.mark.filterwarnings("error")
ODD = "a_$x_<b>&$\"id='1'"  # mathtext, XML and an attribute, in a name
SCALES = [("1/8", 0.125), ("1", 1.0), ("sqrt_d = 8", 8.0), ("learned", 8.0)]


def cells(fusions=("add", "concat"), n=5, data=("tiny",), scales=SCALES):
    """Means of 50 + 10 k + i for the k-th operator at its i-th scale, ± 3 (interval), ± 2 (std);
    each operator is best at scale 1."""
    rows = [
        {
            "data": corpus, "encoding": "sin", "variant": "", "fusion": fusion, "scale": text,
            "scale_number": number, "learned": text == "learned",
            "sqrt_d": text == "sqrt_d = 8", "length": 10.0, "n": n, "mean": mean,
            "std": 2.0 if n > 1 else np.nan, "low": mean - 3 if n > 1 else np.nan,
            "high": mean + 3 if n > 1 else np.nan, "validation": 50.0, "best": text == "1",
        }
        for corpus in data
        for k, fusion in enumerate(fusions)
        for i, (text, number) in enumerate(scales)
        for mean in [50.0 + 10 * k + i]
    ]  # fmt: skip
    return pd.DataFrame(rows)


@pytest.fixture(scope="module")
def figure():
    return scale(cells())


def marked(figure):
    """Each artist that has a hover text, by that text."""
    found = figure.findobj(lambda artist: (artist.get_gid() or "").startswith(TITLE))
    return {artist.get_gid().removeprefix(TITLE): artist for artist in found}


def test_every_cell_is_a_mark_at_its_scale_and_mean(figure):
    found = marked(figure)
    assert len(found) == 8
    mark = found["tiny sin concat, scale 1/8: 60.00 % [57.00, 63.00] n=5"]
    assert (*mark.get_xdata(), *mark.get_ydata()) == (0.125, 60)
    assert figure.axes[0].get_xscale() == "log"


def test_the_band_is_the_t_interval_from_3_seeds_on():
    for n, reach in ((3, 3), (2, 2), (1, 0)):
        (band, _) = scale(cells(n=n)).axes[0].collections
        lines = band.get_paths()[0].vertices
        at_one = lines[lines[:, 0] == 1.0][:, 1]
        assert (at_one.min(), at_one.max()) == pytest.approx((51 - reach, 51 + reach)), n


def test_any_sweep_is_drawn_without_a_warning_and_its_names_do_not_touch(tmp_path):
    for grid in (
        {"fusions": list(LOOKS)},
        {"fusions": ("add", ODD, "x" * 90), "data": (ODD, "中文", "c")},
        {"n": 1},
        {"scales": SCALES[2:]},
        {"scales": SCALES[3:]},
        {"scales": SCALES[:2]},
    ):
        figure = scale(cells(**grid))
        titles = [axis.get_title(loc="left").split("\n")[0] for axis in figure.axes]
        assert len(titles) == len(grid.get("data", "a"))
        for axis in figure.axes:
            boxes = [t.get_window_extent() for t in axis.texts if isinstance(t, LineName)]
            assert len(boxes) == len(grid.get("fusions", "ab"))
            assert all(box.x1 <= figure.bbox.x1 for box in boxes)
            assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])
            ticks = [t.get_window_extent() for t in axis.get_xticklabels()]
            assert not any(a.overlaps(b) for a, b in pairwise(ticks))
        if "data" in grid:
            assert titles[1:] == ["中文", "c"]
            assert ET.fromstring(save(figure, tmp_path, "scale")).get("viewBox")
