import re
import warnings
import xml.etree.ElementTree as ET

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from posfuse.analysis.figures import figures
from posfuse.analysis.figures.figure_style import LOOKS, TITLE, LineName, apart, look, mark, save
from posfuse.analysis.statistics.comparisons import Criteria, compare
from posfuse.analysis.statistics.comparisons import cells as cells_of
from posfuse.analysis.statistics.documents import Paired, by_length

CELL = ["data", "encoding", "fusion", "variant"]
ODD = "a_$x_<b>&$\"id='1'"  # mathtext, XML and an attribute, in a name


@pytest.fixture(autouse=True)
def no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def sweep(corpora=("short", "long"), encodings=("sin",), fusions=("add", "concat"), seeds=3):
    """Runs as `collect` gives them; latency is missing in the first corpus."""
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        [
            {
                "data": data, "encoding": encoding, "fusion": fusion, "variant": "", "seed": seed,
                "length": 30.0 * (i + 1), "latency_ms": np.nan if i == 0 else rng.uniform(1, 2),
                "test.accuracy": 0.8 + rng.normal(0, 0.02),
                "parameters": 9, "fusion_parameters": 1,
            }
            for i, data in enumerate(corpora)
            for encoding in encodings
            for fusion in fusions
            for seed in range(seeds)
        ]
    )  # fmt: skip


def bins_of(comparisons):
    rng = np.random.default_rng(1)
    frames = []
    for row in comparisons.to_dict("records"):
        n, documents = len(row["seeds"]), 40
        length = np.arange(1, documents + 1) if row["data"] != "short" else np.full(documents, 9)
        predicted = rng.integers(0, 2, (2, n, documents))
        paired = Paired(row["seeds"], length, np.ones(documents, int), *predicted)
        frames.append(by_length(paired).assign(**{name: row[name] for name in CELL}))
    return pd.concat(frames, ignore_index=True)


def curves_of(runs, epochs=4):
    rng = np.random.default_rng(2)
    rows = [
        {**{name: run[name] for name in [*CELL, "seed"]}, "epoch": e, "val_accuracy": 50 + 9 * x}
        for run in runs.to_dict("records")
        for e, x in enumerate(rng.random(epochs), 1)
    ]
    return pd.DataFrame(rows)


def draw_all(runs):
    comparisons, _ = compare(runs, Criteria())
    keys = comparisons[CELL].itertuples(index=False, name=None)
    confusions = {key: np.array([[1.5, -1.5], [np.nan, np.nan]]) for key in keys}
    return {
        "deltas": figures.deltas(comparisons, "add"),
        "accuracy_latency": figures.accuracy_latency(cells_of(runs)),
        "forest": figures.forest(comparisons, Criteria()),
        "gain_by_length": figures.gain_by_length(comparisons, bins_of(comparisons), "add"),
        "learning_curves": figures.learning_curves(curves_of(runs)),
        "confusions": figures.confusions(confusions, {"short": ["one", "two"]}, "add"),
    }


def marked(figure):
    """Hover text and artist of all that has one."""
    found = figure.findobj(lambda artist: (artist.get_gid() or "").startswith(TITLE))
    return {artist.get_gid().removeprefix(TITLE): artist for artist in found}


def texts(figure):
    return [text.get_text() for text in figure.findobj(lambda a: hasattr(a, "get_text"))]


GRIDS = {
    "plain": {},
    "one seed": {"seeds": 1, "corpora": ("short",)},
    "two seeds": {"seeds": 2, "encodings": ("sin", "learned")},
    "odd names": {"corpora": (ODD, "中文"), "encodings": (ODD,), "fusions": ("add", ODD, "x" * 90)},
    "many": {"fusions": list(LOOKS)},
}


@pytest.mark.parametrize("grid", GRIDS.values(), ids=GRIDS)
def test_all_figures_of_any_sweep_are_drawn_and_saved_without_a_warning(grid, tmp_path):
    for name, figure in draw_all(sweep(**grid)).items():
        svg = save(figure, tmp_path, name)
        assert svg.startswith("<svg ")
        assert ET.fromstring(svg).get("viewBox")
        assert (tmp_path / f"{name}.svg").read_text() == svg + "\n"
        assert (tmp_path / f"{name}.png").stat().st_size > 1000


def test_empty_frames_give_a_figure_that_says_so():
    runs = sweep(fusions=("add",))
    comparisons, _ = compare(runs, Criteria())
    for figure in [
        figures.deltas(comparisons, "add"),
        figures.forest(comparisons, Criteria()),
        figures.gain_by_length(comparisons, pd.DataFrame(columns=CELL), "add"),
        figures.confusions({}, {}, "add"),
    ]:
        assert texts(figure) == ["nothing to compare"]
    assert texts(figures.accuracy_latency(cells_of(runs)[:0])) == ["no runs"]
    assert texts(figures.learning_curves(pd.DataFrame())) == ["no learning curves"]


def test_every_seed_is_a_mark_at_its_difference():
    comparisons, _ = compare(sweep(), Criteria())
    found = marked(figures.deltas(comparisons, "add"))
    for row in comparisons.to_dict("records"):
        for seed, delta in zip(row["seeds"], row["deltas"], strict=True):
            name = f"{row['data']} sin concat seed={seed}: {delta:+.2f} points"
            assert found[name].get_ydata() == [delta]
        (bar,) = [a for text, a in found.items() if text.startswith(f"{row['data']} sin concat: m")]
        assert list(bar.get_ydata()) == [row["mean"]] * 2


def test_the_interval_is_drawn_from_low_to_high():
    comparisons, _ = compare(sweep(corpora=("short",)), Criteria())
    (row,) = comparisons.to_dict("records")
    lines = figures.deltas(comparisons, "add").axes[0].lines
    assert any(list(line.get_ydata()) == [row["low"], row["high"]] for line in lines)


def test_an_interval_that_dwarfs_the_seeds_is_cut_with_an_arrow_and_a_note():
    comparisons, _ = compare(sweep(corpora=("short",), seeds=2), Criteria())
    comparisons["deltas"], comparisons["mean"] = [[1.0, 3.0]], 2.0
    comparisons["low"], comparisons["high"] = -10.7, 14.7
    figure = figures.deltas(comparisons, "add")
    low, high = figure.axes[0].get_ylim()
    assert -6 < low < 0 < 3 < high < 8
    arrows = {line.get_marker(): line.get_ydata()[0] for line in figure.axes[0].lines}
    assert (arrows["v"], arrows["^"]) == (low, high)
    assert any("an arrow: the line goes on" in text.replace("\n", " ") for text in texts(figure))


def test_forest_rows_hold_the_means_and_write_the_numbers():
    comparisons, _ = compare(sweep(fusions=("add", "concat", "mlp")), Criteria(margin=0.7))
    figure = figures.forest(comparisons, Criteria(margin=0.7))
    found = marked(figure)
    for row in comparisons.to_dict("records"):
        numbers = f"{row['mean']:+.2f} [{row['low']:.2f}, {row['high']:.2f}] n=3"
        assert numbers in texts(figure)
        assert found[f"{row['data']} sin {row['fusion']}: {numbers}"].get_xdata() == [row["mean"]]
    assert [axis.get_title(loc="left") for axis in figure.axes] == ["short", "long"]
    band = figure.axes[0].patches[0]
    assert band.get_x() == pytest.approx(-0.7)
    assert band.get_width() == pytest.approx(1.4)


def test_a_row_of_one_seed_shows_the_point_alone():
    comparisons, _ = compare(sweep(seeds=1, corpora=("short",)), Criteria())
    figure = figures.forest(comparisons, Criteria())
    assert f"{comparisons['mean'][0]:+.2f} n=1" in texts(figure)
    assert len(figure.axes[0].lines) == 2  # zero and the point


def test_accuracy_and_latency_stand_at_their_means_and_a_missing_latency_is_said():
    cells = cells_of(sweep())
    figure = figures.accuracy_latency(cells)
    found = marked(figure)
    assert len(found) == 2 + 2 * 2
    for text, point in found.items():
        row = cells[[text.startswith(f"{r.data} sin {r.fusion}:") for r in cells.itertuples()]]
        value = row["mean"] if "%" in text else row["latency_mean"]
        assert point.get_ydata() == value.tolist()
    assert texts(figure).count("not recorded") == 1


def test_gain_by_length_has_a_panel_over_corpora_and_one_for_each_corpus_with_bins():
    comparisons, _ = compare(sweep(), Criteria())
    bins = bins_of(comparisons)
    figure = figures.gain_by_length(comparisons, bins, "add")
    titles = [axis.get_title(loc="left") for axis in figure.axes]
    assert titles == ["all corpora\nsin", "long\nsin"]  # "short" has one bin
    found = marked(figure)
    inside = bins[bins["data"] == "long"]
    for row in inside.to_dict("records"):
        place = f"long sin concat, {row['shortest']} to {row['longest']} tokens: "
        (point,) = [artist for text, artist in found.items() if text.startswith(place)]
        assert point.get_ydata() == [row["mean"]]
        assert point.get_xdata() == pytest.approx([row["mean_length"]], rel=0.1)


def test_learning_curves_are_means_with_a_band_from_lowest_to_highest():
    curves = curves_of(sweep(corpora=("short",)))
    axis = figures.learning_curves(curves).axes[0]
    by_epoch = curves[curves["fusion"] == "concat"].groupby("epoch")["val_accuracy"]
    assert any(np.array_equal(line.get_ydata(), by_epoch.mean()) for line in axis.lines)
    bands = [set(c.get_paths()[0].vertices[:, 1]) for c in axis.collections]
    assert any({*by_epoch.min(), *by_epoch.max()} <= band for band in bands)


@pytest.mark.parametrize("name", ["learning_curves", "gain_by_length"])
def test_names_at_the_lines_ends_do_not_touch_and_are_inside_the_figure(name):
    figure = draw_all(sweep(fusions=list(LOOKS)))[name]
    for axis in figure.axes:
        boxes = [t.get_window_extent() for t in axis.texts if isinstance(t, LineName)]
        assert len(boxes) >= len(LOOKS) - 1
        assert all(box.x1 <= figure.bbox.x1 for box in boxes)
        assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])


def test_the_names_of_operators_tell_the_two_starts_of_a_gate_apart():
    fusions = ["add", "gate_scalar", "gate_scalar_linear_start", "gate_feature_linear_start"]
    drawn = draw_all(sweep(fusions=fusions))
    for name in ("learning_curves", "deltas", "accuracy_latency", "gain_by_length"):
        shown = {"gate_scalar", "gate_scalar, linear", "gate_feature, linear"}
        assert shown <= set(texts(drawn[name])), name


def test_apart_moves_only_what_touches():
    assert apart([0.2, 0.8], 0.1).tolist() == [0.2, 0.8]
    assert apart([0.5, 0.5], 0.1) == pytest.approx([0.45, 0.55])
    assert apart([0.52, 0.1, 0.5], 0.1) == pytest.approx([0.56, 0.1, 0.46])
    assert apart([0.0, 0.0, 1.0], 0.1) == pytest.approx([0.0, 0.1, 1.0])


def test_heatmaps_show_the_values_and_leave_the_numbers_of_many_classes_out():
    small = np.array([[3.21, -3.21], [np.nan, np.nan]])
    figure = figures.confusions({("d", "e", "f", ""): small}, {"d": ["<one>", "$two$"]}, "add")
    (image,) = figure.axes[0].images
    assert np.array_equal(image.get_array().filled(np.nan), small, equal_nan=True)
    assert image.norm(0.0) == 0.5
    assert {"+3.2", "-3.2", "<one>", "$two$"} <= set(texts(figure))
    large = figures.confusions({("d", "e", "f", ""): np.full((13, 13), 1.25)}, {}, "add")
    assert "+1.2" not in texts(large)
    many = {("d", "e", str(i), ""): small for i in range(13)}
    figure = figures.confusions(many, {}, "add")
    assert len(figure.axes) == 12
    assert any("12 of 13" in text.replace("\n", " ") for text in texts(figure))


def test_an_operator_has_one_look_in_all_figures_and_no_two_known_ones_share_it():
    for part in zip(*LOOKS.values(), strict=True):
        assert len(set(map(str, part))) == len(LOOKS)
    assert look("concat") is LOOKS["concat"]
    assert look("mine") == look("mine")


def test_saving_twice_gives_equal_bytes(tmp_path):
    runs = sweep()
    for folder in ("one", "two"):
        for name, figure in draw_all(runs).items():
            save(figure, tmp_path / folder, name)
    for path in (tmp_path / "one").iterdir():
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes()
    svg = (tmp_path / "one" / "deltas.svg").read_text()
    assert "<metadata" not in svg
    assert "<style" not in svg  # its rule would hold for the whole page


def test_hover_texts_are_titles_and_escaped(tmp_path):
    figure = Figure()
    (line,) = figure.add_subplot().plot([1], [2], "o")
    mark(line, ODD)
    svg = save(figure, tmp_path, "name")
    (title,) = ET.fromstring(svg).iter("{http://www.w3.org/2000/svg}title")
    assert title.text == ODD
    assert "&lt;b&gt;&amp;$" in svg
    assert TITLE not in svg


def test_two_figures_on_a_page_share_no_id_and_every_reference_is_found(tmp_path):
    drawn = draw_all(sweep())
    page = "".join(save(drawn[name], tmp_path, name) for name in ("deltas", "learning_curves"))
    ids = re.findall(r'\bid="([^"]*)"', page)
    assert len(ids) == len(set(ids)) > 50
    assert all(i.startswith(("deltas-", "learning_curves-")) for i in ids)
    used = re.findall(r'url\(#([^)]*)\)|href="#([^"]*)"', page)
    assert used
    assert {a or b for a, b in used} <= set(ids)


def test_text_stays_text_and_the_figure_scales(tmp_path):
    runs = sweep(corpora=("a_$b$_c",))
    svg = save(draw_all(runs)["forest"], tmp_path, "forest")
    assert ">a_$b$_c</text>" in svg
    root = ET.fromstring(svg)
    assert root.get("width") == "100%"
    assert root.get("height") is None
    assert "max-width:576pt" in root.get("style")
