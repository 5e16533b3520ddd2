"""The figures: every mark is at its value, names do not touch, files are stable and safe."""

import gc
import io
import re
import warnings
import xml.etree.ElementTree as ET
from importlib.resources import files
from itertools import pairwise, product

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.image import imread
from matplotlib.text import Text

from posfuse.evidence.collect import CELL, collect
from posfuse.report.figures.plot import heatmap
from posfuse.report.figures.style import LOOKS, LineName, Look, apart, grid, look, settle
from posfuse.report.figures.svg import TITLE, for_page, mark, save
from posfuse.report.sections import by_document, differences, paper, training_figures
from posfuse.report.sections.own_values import scale
from posfuse.report.sweep import Sweep
from posfuse.runs.measurements import WHOLE, Measurement, table_of, write_table
from posfuse.runs.records import MECHANISM
from posfuse.statistics.comparisons import Criteria, compare
from posfuse.statistics.comparisons import cells as cells_of
from posfuse.verdicts.claims import Claims
from small_records import write_record

ODD = "a_$x_<b>&$\"id='1'"  # mathtext, XML and an attribute, in a name


pytestmark = pytest.mark.filterwarnings("error")


@pytest.fixture(autouse=True, scope="module")
def no_garbage():
    """The garbage of other tests would give its warnings here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gc.collect()


def sweep(corpora=("short", "long"), encodings=("sin",), fusions=("add", "concat"), seeds=3):
    """The rows of `collect`; the first corpus has no latencies."""
    keys = product(corpora, encodings, fusions, [""], range(seeds))
    runs = pd.DataFrame(keys, columns=[*CELL, "seed"])
    draw, is_first = np.random.default_rng(0), runs["data"] == corpora[0]
    return runs.assign(
        length=np.where(is_first, 30.0, 60.0),
        latency_ms=np.where(is_first, np.nan, draw.uniform(1, 2, len(runs))),
        **{"test.accuracy": draw.normal(0.8, 0.02, len(runs))},
    )


def bins_of(comparisons):
    """Four bins of document length for each comparison; one in the corpus "short"."""
    draw = np.random.default_rng(1)
    bins = pd.DataFrame({"shortest": [1, 11, 21, 31]})
    bins = bins.assign(longest=bins["shortest"] + 9, mean_length=bins["shortest"] + 4.5)
    bins = comparisons[CELL].merge(bins, "cross").assign(n=3)
    bins = bins[(bins["data"] != "short") | (bins["shortest"] == 1)]
    mean = draw.normal(size=len(bins))
    return bins.assign(mean=mean, low=mean - 1, high=mean + 1)


def curves_of(runs):
    draw = np.random.default_rng(2)
    curves = runs[[*CELL, "seed"]].merge(pd.DataFrame({"epoch": [1, 2, 3, 4]}), "cross")
    return curves.assign(value=draw.uniform(50, 59, len(curves)))


def draw_all(runs):
    comparisons, _ = compare(runs, Criteria())
    keys = comparisons[CELL].itertuples(index=False, name=None)
    confusions = {key: np.array([[1.5, -1.5], [np.nan, np.nan]]) for key in keys}
    return {
        "accuracy_latency": paper.accuracy_latency(cells_of(runs)),
        "forest": differences.forest(comparisons, Criteria()),
        "gain_by_length": by_document.gain_by_length(comparisons, bins_of(comparisons), Criteria()),
        "learning_curves": training_figures.learning_curves(curves_of(runs)),
        "confusions": by_document.confusions(confusions, {"short": ["one", "two"]}, "add"),
    }


@pytest.fixture(scope="module")
def drawn():
    return draw_all(sweep())


@pytest.fixture(scope="module")
def comparisons():
    return compare(sweep(), Criteria())[0]


SCALES = [("1/8", 0.125), ("1", 1.0), ("sqrt_d = 8", 8.0), ("learned", 8.0)]


def values(fusions=("add", "concat"), n=5, data=("tiny",), scales=SCALES):
    """Means of 50 + 10 k + i for the k-th operator at its i-th scale, ± 3 (interval), ± 2 (std);
    each operator is best at scale 1."""
    rows = [
        (corpus, fusion, text, number, 50.0 + 10 * k + i)
        for corpus, (k, fusion) in product(data, enumerate(fusions))
        for i, (text, number) in enumerate(scales)
    ]
    cells = pd.DataFrame(rows, columns=["data", "fusion", "scale", "scale_number", "mean"])
    text, mean, one = cells["scale"], cells["mean"], 1.0 if n > 1 else np.nan
    return cells.assign(
        encoding="sin", variant="", n=n, std=2 * one, low=mean - 3 * one, high=mean + 3 * one,
        best=text == "1", learned=text == "learned", sqrt_d=text == "sqrt_d = 8",
    )  # fmt: skip


def marked(figure):
    """Each artist that has a hover text, by that text."""
    found = figure.findobj(lambda artist: (artist.get_gid() or "").startswith(TITLE))
    return {artist.get_gid().removeprefix(TITLE): artist for artist in found}


def texts(figure):
    return [text.get_text() for text in figure.findobj(lambda a: hasattr(a, "get_text"))]


def test_figures_of_any_sweep_are_drawn_and_saved_without_a_warning(tmp_path):
    draw_all(sweep(seeds=1, corpora=("short",)))
    fusions = ("add", ODD, "x" * 90)
    odd = sweep(corpora=(ODD, "中文"), encodings=(ODD,), fusions=fusions, seeds=2)
    for name, figure in draw_all(odd).items():
        svg = save(figure, tmp_path, name)
        root = ET.fromstring(svg)
        assert root.get("viewBox")
        assert all(re.fullmatch(r"\d+(\.\d+)?pt", root.get(side)) for side in ("width", "height"))
        assert "width" not in root.get("style")  # the page decides how far it may shrink
        assert "<metadata" not in svg
        assert "<style" not in svg  # it would hold for the whole page
        if name == "forest":  # text stays text, and no mathtext
            assert ODD in [text.text for text in root.iter("{http://www.w3.org/2000/svg}text")]
        assert (tmp_path / f"{name}.svg").read_text() == svg + "\n"
        assert (tmp_path / f"{name}.png").stat().st_size > 1000


def test_an_interval_far_wider_than_the_seeds_is_cut_with_an_arrow_and_a_note(comparisons):
    two = comparisons[:1].assign(deltas=[[1.0, 3.0, 2.0]], mean=2.0, low=-10.7, high=14.7)
    figure = differences.forest(two, Criteria())
    low, high = figure.axes[0].get_xlim()
    assert -6 < low < 0 < 3 < high < 8
    arrows = {line.get_marker(): line.get_xdata()[0] for line in figure.axes[0].lines}
    assert (arrows["<"], arrows[">"]) == (low, high)
    assert "an arrow: the interval is longer" in " ".join(texts(figure)).replace("\n", " ")


def test_a_block_has_its_own_scale_if_it_would_use_less_than_a_quarter_of_a_shared_one(
    comparisons,
):
    one = comparisons[:1].assign(deltas=[[1.0, 3.0, 2.0]], mean=2.0, low=1.0, high=3.0)
    for factor, is_shared in ((3, True), (5, False)):
        other = one.assign(data="long", deltas=[[factor, 3 * factor, 2 * factor]])
        other[["mean", "low", "high"]] *= factor
        figure = differences.forest(pd.concat([one, other]), Criteria())
        first, second = (axis.get_xlim() for axis in figure.axes)
        assert (first == second) == is_shared
        assert ("each block has its own scale" in " ".join(texts(figure))) != is_shared


@pytest.mark.parametrize("other", ["lr=1", "lr=2"])
def test_panels_name_the_overrides_that_not_all_of_them_have(other):
    panels = [("short", "sin", "lr=1"), ("long", "sin", other)]
    figure, _ = grid([1, 1], panels, "caption", (3, 2))
    titles = [axis.get_title(loc="left").split("\n")[2:] for axis in figure.axes]
    assert titles == ([[], []] if other == "lr=1" else [["lr=1"], ["lr=2"]])


def test_a_forest_leaves_out_the_variant_of_all_rows(comparisons):
    one = comparisons[:1].assign(variant="lr=1")
    figure = differences.forest(one, Criteria())
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["sin concat"]
    assert "lr=1" not in " ".join(marked(figure))
    both = differences.forest(pd.concat([one, one.assign(variant="lr=2")]), Criteria())
    names = [text.partition(": ")[0] for text in marked(both) if "seed=" not in text]
    assert names == [f"short sin concat lr={n}" for n in (1, 2)]


def test_forest_rows_show_each_seed_the_mean_and_the_numbers():
    comparisons, _ = compare(sweep(fusions=("add", "concat", "mlp")), Criteria(margin=0.7))
    comparisons.loc[0, ["low", "high"]] = np.nan  # as of one seed
    figure = differences.forest(comparisons, Criteria(margin=0.7))
    found = marked(figure)
    assert f"{comparisons['mean'][0]:+.2f} n=3" in texts(figure)
    lines = [list(line.get_xdata()) for axis in figure.axes for line in axis.lines]
    for row in comparisons.to_dict("records"):
        name = f"{row['data']} sin {row['fusion']}"
        for seed, delta in zip(row["seeds"], row["deltas"], strict=True):
            assert found[f"{name} seed={seed}: {delta:+.2f}"].get_xdata() == [delta]
        if row["low"] == row["low"]:
            numbers = f"{row['mean']:+.2f} [{row['low']:.2f}, {row['high']:.2f}] n=3"
            assert numbers in texts(figure)
            assert found[f"{name}: {numbers}"].get_xdata() == [row["mean"]]
            assert [row["low"], row["high"]] in lines
    assert len(found) == 4 + 4 * 3  # four means and the marks of their seeds
    caption = " ".join(figure.get_suptitle().split())
    assert "; small mark: one seed; mean with its 95 % t interval;" in caption
    assert [axis.get_title(loc="left") for axis in figure.axes] == ["short", "long"]
    # Zero, two points, one interval, and the marks of two rows with three seeds.
    assert len(figure.axes[0].lines) == 4 + 2 * 3
    (band,) = figure.axes[0].collections[0].get_paths()
    assert [band.get_extents().x0, band.get_extents().x1] == pytest.approx([-0.7, 0.7])


def test_a_long_name_of_a_row_is_not_cut(comparisons, tmp_path):
    named = comparisons.assign(fusion="no_gain_on_text_without_position")
    save(differences.forest(named, Criteria()), tmp_path, "forest")
    pixels = imread(tmp_path / "forest.png")
    assert pixels.shape[1] == 8 * 150
    assert (pixels[:, :2] == 1).all()  # the left edge is white


def test_accuracy_and_latency_are_at_their_means(drawn):
    found = marked(drawn["accuracy_latency"])
    assert len(found) == 2 + 2 * 2
    cells = cells_of(sweep()).set_index(["data", "fusion"])
    for text, point in found.items():
        corpus, _, fusion = text.partition(":")[0].split()
        column = "mean" if "%" in text else "latency_mean"
        assert point.get_ydata() == [cells.loc[(corpus, fusion), column]]


def test_gain_by_length_has_a_panel_over_corpora_and_one_for_each_corpus_with_bins(
    drawn, comparisons
):
    figure = drawn["gain_by_length"]
    titles = [axis.get_title(loc="left") for axis in figure.axes]
    assert titles == ["all corpora\nsin", "long\nsin"]  # "short" has one bin
    found = marked(figure)
    bins = bins_of(comparisons)
    for row in bins[bins["data"] == "long"].to_dict("records"):
        place = f"long sin concat, {row['shortest']} to {row['longest']} tokens: "
        (point,) = [artist for text, artist in found.items() if text.startswith(place)]
        assert point.get_ydata() == [row["mean"]]
        assert point.get_xdata() == pytest.approx([row["mean_length"]], rel=0.1)


def test_learning_curves_are_means_with_a_band_from_lowest_to_highest(drawn):
    curves = curves_of(sweep())
    axis = drawn["learning_curves"].axes[0]
    of = (curves["fusion"] == "concat") & (curves["data"] == "short")
    by_epoch = curves[of].groupby("epoch")["value"]
    assert any(np.array_equal(line.get_ydata(), by_epoch.mean()) for line in axis.lines)
    bands = [set(c.get_paths()[0].vertices[:, 1]) for c in axis.collections]
    assert any({*by_epoch.min(), *by_epoch.max()} <= band for band in bands)


def test_names_at_the_lines_ends_do_not_touch_and_are_inside_the_figure():
    runs = sweep(fusions=list(LOOKS), corpora=("long",))
    comparisons, _ = compare(runs, Criteria())
    for figure in (
        training_figures.learning_curves(curves_of(runs)),
        by_document.gain_by_length(comparisons, bins_of(comparisons), Criteria()),
        scale(values(list(LOOKS))),
    ):
        shown = {"gate_scalar", "gate_scalar, linear", "gate_feature, linear"}
        assert shown <= set(texts(figure))  # the two starts of a gate have unlike names
        for axis in figure.axes:
            boxes = [t.get_window_extent() for t in axis.texts if isinstance(t, LineName)]
            assert len(boxes) >= len(LOOKS) - 1
            assert all(box.x1 <= figure.bbox.x1 for box in boxes)
            assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])
    assert shown <= set(texts(paper.accuracy_latency(cells_of(runs))))


def test_apart_moves_only_what_touches():
    assert apart([0.2, 0.8], 0.1).tolist() == [0.2, 0.8]
    assert apart([0.5, 0.5], 0.1) == pytest.approx([0.45, 0.55])
    assert apart([0.52, 0.1, 0.5], 0.1) == pytest.approx([0.56, 0.1, 0.46])
    assert apart([0.0, 0.0, 1.0], 0.1) == pytest.approx([0.0, 0.1, 1.0])


def test_heatmaps_write_the_values_of_a_few_classes_only():
    small = np.array([[3.21, -3.21], [np.nan, np.nan]])
    figure = by_document.confusions({("d", "e", "f", ""): small}, {"d": ["<one>", "$two$"]}, "add")
    (image,) = figure.axes[0].images
    assert np.array_equal(image.get_array().filled(np.nan), small, equal_nan=True)
    assert image.norm(0.0) == 0.5
    assert {"+3.2", "-3.2", "<one>", "$two$"} <= set(texts(figure))
    large = by_document.confusions({("d", "e", "f", ""): np.full((13, 13), 1.25)}, {}, "add")
    assert "+1.2" not in texts(large)
    many = {("d", "e", str(i), ""): small for i in range(13)} | {("last", "e", "f", ""): small}
    figure = by_document.confusions(many, {}, "add")
    titles = [axis.get_title(loc="left").split("\n")[0] for axis in figure.axes]
    assert titles == ["d"] * 11 + ["last"]  # every corpus has one
    assert any("12 of 14" in text.replace("\n", " ") for text in texts(figure))


def test_texts_of_a_saved_figure_are_texts_titles_and_escaped(tmp_path):
    figure = Figure()
    axes = figure.subplots()
    (line,) = axes.plot([1], [2], "o")
    mark(line, ODD)
    axes.set_xlabel("a\x07b\x00c\ufffe é")  # XML does not have all of these characters
    svg = save(figure, tmp_path, "name")
    root = ET.fromstring(svg)
    (title,) = root.iter("{http://www.w3.org/2000/svg}title")
    assert title.text == ODD
    assert "&lt;b&gt;&amp;$" in svg
    assert TITLE not in svg
    assert "a\ufffdb\ufffdc\ufffd é" in "".join(root.itertext())


def test_last_digits_of_sizes_do_not_change_the_ids_of_a_picture():
    """Matplotlib computes the ids of clip paths from unrounded sizes."""
    drawn = io.StringIO()
    figure = Figure()
    for axis in figure.subplots(1, 2):
        axis.bar([1], [1], hatch="/")
    figure.savefig(drawn, format="svg", metadata={"Date": None})
    text = drawn.getvalue()
    first, second = re.findall('<clipPath id="(.*?)"', text)
    other = text.replace(first, "p0").replace(second, "p1")
    svg = for_page(text, "name")
    assert for_page(other, "name") == svg
    used = set(re.findall(r"url\(#(.*?)\)", svg))
    assert len(used) == 3  # two clip paths and a hatch
    assert used < set(re.findall(r'id="(.*?)"', svg))


def test_each_operator_has_a_look_of_its_own_and_each_verdict_the_colour_of_its_badge():
    for part in zip(*LOOKS.values(), strict=True):
        assert len(set(map(str, part))) == len(LOOKS)
    assert look("concat") is LOOKS["concat"]
    assert look("mine") == Look("#7A7A00", "d", (0, (2, 2, 6, 2)))  # as in any process
    looks = {name: look(name) for name in ("supported", "refuted", "equivalent", "undecided")}
    colors, markers, _ = zip(*looks.values(), strict=True)
    assert (len(set(colors)), len(set(markers))) == (4, 4)
    css = files("posfuse.report").joinpath("page.css").read_text()
    for name, of in (("supported", "good"), ("refuted", "bad"), ("equivalent", "same")):
        assert f"--{of}: {looks[name].color.lower()};" in css


def contrast(one, other):
    """The contrast of two colours (WCAG 2.2): 1 for equal ones, 21 for black on white."""

    def luminance(color):
        rgb = np.array(to_rgb(color))
        linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
        return linear @ [0.2126, 0.7152, 0.0722]

    darker, lighter = sorted([luminance(one), luminance(other)])
    return (lighter + 0.05) / (darker + 0.05)


def test_the_numbers_in_a_heatmap_are_readable_on_every_colour():
    assert contrast("black", "white") == pytest.approx(21)
    axis = Figure().subplots()
    heatmap(axis, np.linspace(-10, 10, 100).reshape(10, 10), 10.0, [])
    (image,) = axis.images
    grounds = {text: image.get_array()[text.get_position()[::-1]] for text in axis.texts}
    contrasts = [contrast(t.get_color(), image.to_rgba(v)) for t, v in grounds.items()]
    assert len(contrasts) == 100
    assert min(contrasts) >= 4.5


def test_all_texts_of_the_figures_are_readable_on_white(drawn):
    for name, figure in drawn.items():
        texts = [t for t in figure.findobj(Text) if t.get_text() and t.get_visible()]
        in_cells = {t for axis in figure.axes if axis.images for t in axis.texts}
        colors = {t.get_color() for t in texts if t not in in_cells}
        assert min(contrast(color, "white") for color in colors) >= 4.5, name


def test_every_value_is_a_mark_at_its_scale_and_mean_in_a_t_interval_from_3_seeds_on():
    figure = scale(values())
    found = marked(figure)
    assert len(found) == 8
    mark = found["tiny sin concat, scale 1/8: 60.00 % [57.00, 63.00] n=5"]
    assert (*mark.get_xdata(), *mark.get_ydata()) == (0.125, 60)
    assert figure.axes[0].get_xscale() == "log"
    for n, reach in ((3, 3), (2, 2), (1, 0)):
        (band, _) = scale(values(n=n)).axes[0].collections
        lines = band.get_paths()[0].vertices
        at_one = lines[lines[:, 0] == 1.0][:, 1]
        assert (at_one.min(), at_one.max()) == pytest.approx((51 - reach, 51 + reach)), n


def test_labels_of_a_tuned_key_do_not_touch():
    for scales in (SCALES, SCALES[2:], SCALES[3:], SCALES[:2]):
        figure = scale(values(data=(ODD, "中文", "c"), scales=scales))
        titles = [axis.get_title(loc="left").split("\n")[0] for axis in figure.axes]
        assert titles[1:] == ["中文", "c"]
        for axis in figure.axes:
            ticks = [t.get_window_extent() for t in axis.get_xticklabels()]
            assert not any(a.overlaps(b) for a, b in pairwise(ticks))


def test_documents_that_are_too_few_for_a_probe_have_the_other_figures(tmp_path):
    names = "reordered_changed", "input_followed", "attention_followed"
    rows = [Measurement(f"patch_{name}", WHOLE, 1, 1.0) for name in names]
    for fusion in ("add", "concat"):
        folder = write_record(tmp_path / "sweep", 0.5, fusion)
        write_table(folder / MECHANISM, table_of(Measurement, rows))
    runs, _ = collect(tmp_path / "sweep")
    section = training_figures.section(Sweep(str(tmp_path), runs, Criteria(), Claims()))
    assert [drawing.name for drawing in section.drawings] == ["learning_curves", "patching"]
    found = marked(section.drawings[1].draw())
    assert "tiny sinusoidal add, input moved: follows 100.0 % of documents, n=1" in found
    assert "tiny sinusoidal add, attention moved: stays 0.0 % of documents, n=1" in found


def test_the_name_of_a_line_that_is_cut_stays_beside_its_panel():
    figure = Figure((3, 2), layout="constrained")
    axis = figure.subplots()
    axis.plot([0, 1], [0, -5])
    LineName(axis, (1, -5), "add")
    axis.set_ylim(0, 1)
    settle(figure)
    leader = next(line for line in axis.lines if line.get_transform() == axis.transAxes)
    assert 0 <= min(leader.get_ydata()) <= max(leader.get_ydata()) <= 1
