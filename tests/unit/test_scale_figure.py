"""The figure of accuracy over the token scale: what stands where, and that nothing touches."""

import warnings
import xml.etree.ElementTree as ET
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest

from posfuse.analysis.figures.figure_style import LOOKS, TITLE, LineName, save
from posfuse.analysis.figures.scale_figure import scale

ODD = "a_$x_<b>&$\"id='1'"  # mathtext, XML and an attribute, in a name
SCALES = [("1/8", 0.125), ("1", 1.0), ("sqrt_d = 8", 8.0), ("learned", np.nan)]


@pytest.fixture(autouse=True)
def no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def cells(fusions=("add", "concat"), n=5, data=("tiny",), scales=SCALES):
    """Means of 50 + 10 k + i for the k-th operator at its i-th scale, ± 3 (interval), ± 2 (std);
    each operator is best at scale 1."""
    rows = [
        {
            "data": corpus, "encoding": "sin", "variant": "", "fusion": fusion, "scale": text,
            "number": number, "sqrt_d": number == 8, "length": 10.0, "n": n, "mean": mean,
            "std": 2.0 if n > 1 else np.nan, "low": mean - 3 if n > 1 else np.nan,
            "high": mean + 3 if n > 1 else np.nan, "validation": 50.0, "best": text == "1",
        }
        for corpus in data
        for k, fusion in enumerate(fusions)
        for i, (text, number) in enumerate(scales)
        for mean in [50.0 + 10 * k + i]
    ]  # fmt: skip
    return pd.DataFrame(rows)


def marked(figure):
    found = figure.findobj(lambda artist: (artist.get_gid() or "").startswith(TITLE))
    return {artist.get_gid().removeprefix(TITLE): artist for artist in found}


def test_every_cell_is_a_mark_at_its_scale_and_mean():
    figure = scale(cells())
    found = marked(figure)
    assert len(found) == 8
    mark = found["tiny sin concat, scale 1/8: 60.00 % [57.00, 63.00] n=5"]
    assert (*mark.get_xdata(), *mark.get_ydata()) == (0.125, 60)
    assert figure.axes[0].get_xscale() == "log"


def test_learned_scales_stand_side_by_side_right_of_all_numbers_under_their_name():
    figure = scale(cells())
    axis = figure.axes[0]
    learned = [artist for text, artist in marked(figure).items() if "scale learned" in text]
    places = [artist.get_xdata()[0] for artist in learned]
    assert 8 < places[0] < places[1]
    names = [label.get_text() for label in axis.get_xticklabels()]
    ticks = dict(zip(names, axis.get_xticks(), strict=True))
    assert places[0] <= ticks["learned"] <= places[1]
    assert ticks["sqrt_d\n8"] == 8
    assert sorted(ticks.values()) == pytest.approx([0.125, 1, 8, ticks["learned"]])


@pytest.mark.parametrize(("n", "reach"), [(5, 3), (3, 3), (2, 2), (1, 0)])
def test_the_band_is_the_t_interval_from_3_seeds_on(n, reach):
    (band, _) = scale(cells(n=n)).axes[0].collections
    lines = band.get_paths()[0].vertices
    at_one = lines[lines[:, 0] == 1.0][:, 1]
    assert (at_one.min(), at_one.max()) == pytest.approx((51 - reach, 51 + reach))


def test_a_band_stays_an_accuracy():
    wide = cells()
    wide["low"], wide["high"] = -20.0, 140.0
    low, high = scale(wide).axes[0].get_ylim()
    assert -10 < low <= 0
    assert 100 <= high < 110


def test_the_papers_scale_is_a_line_and_the_best_has_a_ring():
    axis = scale(cells()).axes[0]
    dotted = [line for line in axis.lines if line.get_linestyle() == ":"]
    assert [list(line.get_xdata()) for line in dotted] == [[8, 8]]
    rings = [line for line in axis.lines if line.get_markerfacecolor() == "none"]
    assert [(*r.get_xdata(), *r.get_ydata()) for r in rings] == [(1, 51), (1, 61)]


def test_a_panel_for_each_corpus_and_encoding():
    figure = scale(cells(data=("short", "long")))
    assert [axis.get_title(loc="left") for axis in figure.axes] == ["short\nsin", "long\nsin"]


@pytest.mark.parametrize(
    "grid",
    [
        {"fusions": list(LOOKS)},
        {"fusions": ("add", ODD, "x" * 90), "data": (ODD, "中文", "c")},
        {"n": 1},
        {"scales": SCALES[2:]},
        {"scales": SCALES[:2]},
    ],
)
def test_any_sweep_is_drawn_without_a_warning_and_its_names_do_not_touch(grid, tmp_path):
    figure = scale(cells(**grid))
    for axis in figure.axes:
        boxes = [t.get_window_extent() for t in axis.texts if isinstance(t, LineName)]
        assert len(boxes) == len(grid.get("fusions", "ab"))
        assert all(box.x1 <= figure.bbox.x1 for box in boxes)
        assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])
        ticks = [t.get_window_extent() for t in axis.get_xticklabels()]
        assert not any(a.overlaps(b) for a, b in pairwise(ticks))
    assert ET.fromstring(save(figure, tmp_path, "scale")).get("viewBox")


def test_without_a_scale_axis_it_says_so():
    (text,) = scale(cells()[:0]).texts
    assert text.get_text() == "one token scale only"
