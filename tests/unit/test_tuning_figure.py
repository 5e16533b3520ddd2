"""The figures of accuracy over a tuned key: every mark is at its value and no labels touch."""

import xml.etree.ElementTree as ET
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest

from posfuse.report.figures.style import LOOKS, LineName
from posfuse.report.figures.svg import TITLE, save
from posfuse.report.sections.own_values import learning_rate, scale

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


def test_a_learned_scale_is_a_hollow_mark_beside_the_scale_where_it_starts(figure):
    axis = figure.axes[0]
    found = marked(figure)
    learned = [artist for text, artist in found.items() if "scale learned" in text]
    assert len(learned) == 2
    assert all(8 < artist.get_xdata()[0] < 16 for artist in learned)
    hollow = [artist for artist in found.values() if artist.get_markerfacecolor() == "white"]
    assert hollow == learned
    names = [label.get_text() for label in axis.get_xticklabels()]
    assert names == ["1/8", "1", "sqrt_d\n8"]
    assert axis.get_xticks().tolist() == [0.125, 1, 8]
    alone = scale(cells(scales=[("1", 1.0), ("learned", 8.0)])).axes[0]
    assert [label.get_text() for label in alone.get_xticklabels()] == ["1", "8"]


def test_the_other_tuned_key_is_named(figure):
    both = cells().assign(lr="0.001", lr_number=0.001, learned=False)
    text = " ".join(learning_rate(both).get_suptitle().split())
    assert "by learning rate, each at the best value of the other tuned key" in text
    assert "other tuned key" not in " ".join(figure.get_suptitle().split())
    assert "tiny sin add, scale 1, lr 0.001: 51.00 % [48.00, 54.00] n=5" in marked(scale(both))


def test_the_papers_scale_is_a_line_and_the_best_has_a_ring(figure):
    lines = figure.axes[0].lines
    dotted = [line for line in lines if line.get_linestyle() == ":"]
    assert [list(line.get_xdata()) for line in dotted] == [[8, 8]]
    rings = [line for line in lines if line.get_markerfacecolor() == "none"]
    assert [(*r.get_xdata(), *r.get_ydata()) for r in rings] == [(1, 51), (1, 61)]


def test_the_band_is_the_t_interval_from_3_seeds_on():
    for n, reach in ((3, 3), (2, 2), (1, 0)):
        (band, _) = scale(cells(n=n)).axes[0].collections
        lines = band.get_paths()[0].vertices
        at_one = lines[lines[:, 0] == 1.0][:, 1]
        assert (at_one.min(), at_one.max()) == pytest.approx((51 - reach, 51 + reach)), n


def test_a_band_stays_between_0_and_100_percent():
    wide = cells()
    wide["low"], wide["high"] = -20.0, 140.0
    low, high = scale(wide).axes[0].get_ylim()
    assert -10 < low <= 0
    assert 100 <= high < 110


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


def test_without_a_scale_axis_the_figure_is_a_text():
    (text,) = scale(cells()[:0]).texts
    assert text.get_text() == "one token scale only"
