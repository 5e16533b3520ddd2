"""The paper's Tables 1 to 3 with our numbers beside the published ones, and the figure of
latency."""

from functools import partial

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from posfuse.evidence.bag_of_words import BagOfWords, Bags, bags_of_words
from posfuse.evidence.collect import CELL
from posfuse.evidence.metric import ACCURACY, Metric
from posfuse.evidence.published import Published, numbers, published_cell, published_latency
from posfuse.report.figures import plot, style
from posfuse.report.sections.section import TABLES, Section, drawing
from posfuse.report.sweep import Sweep
from posfuse.report.table import Row, Table, by_fusion, count, if_many, over_seeds, table_of
from posfuse.runs.coverage import coverage_warning, repetition

MARK = "†"  # our number disagrees with the paper's
BAG = "bag of words"
BAGS = {"bag_of_words": BAG, "bag_with_ends": f"{BAG}, first and last symbol"}  # by column
BY_CELL = "mean ± standard deviation over seeds, number of seeds in brackets."
DIFFERS = (
    f"{MARK} differs from the published mean (Welch's test, p < 0.05; with one seed, outside the "
    "95 % prediction interval)."
)
OF_PUBLISHED = (
    f" {DIFFERS} The spreads in the paper's Table 1 are too small to be standard "
    "deviations over seeds; its Table 3 prints larger ones for the same cells."
)
OF_BAGS = (
    f" {BAG}: TF-IDF and logistic regression on the same words and documents, without position or "
    "fusion."
)
WITH_ENDS = f" {BAGS['bag_with_ends']}: the pair of the two is one more word."


def section(sweep: Sweep) -> Section:
    """The tables and the figure. In a sweep over token scales or learning rates they have a row for
    every value, so the terminal shows other tables."""
    cells, metric = sweep.cells, sweep.metric
    # The accuracy of a bag of words cannot be compared with another metric.
    compared = sweep.classifiers if metric == ACCURACY else sweep.classifiers[:0]
    bags, without_bag = bags_of_words(compared)
    tables = paper_tables(cells, bags, metric)
    caption = f"{metric.heading} and latency by fusion."
    return Section(
        TABLES,
        drawings=drawing(accuracy_latency, cells, metric, caption=caption),
        tables=tables,
        shown=[] if sweep.is_tuned else tables,
        notes=[*_coverage_warnings(sweep.runs), *without_order(cells, bags), *without_bag],
    )


def _coverage_warnings(runs: pd.DataFrame) -> list[str]:
    """Lines about each corpus and variant whose tokens do not represent the texts, or whose test
    documents occur in train."""
    lines = []
    for _, group in runs.groupby(["data", "variant"], sort=False):
        for line_of in (coverage_warning, repetition):
            lines += [*filter(None, map(line_of, group.to_dict("records")))][:1]
    return lines


def without_order(cells: pd.DataFrame, bags: Bags) -> list[str]:
    """A note for each corpus on which a bag of words is as good as every fusion in all settings."""
    notes = []
    for data, own in cells.groupby("data", sort=False):
        best = own.groupby("variant")["mean"].max()
        of_bags = [
            bags[key].accuracy if (key := (data, v)) in bags else -np.inf for v in best.index
        ]
        if (of_bags >= best).all():
            least, most = (f"{end(of_bags):.2f}" for end in (min, max))
            reaches = f"{least} %," if least == most else f"{least} to {most} %, in each setting"
            notes.append(
                f"{data}: a bag of words reaches {reaches} at least as much as every "
                "fusion; this corpus shows little about position"
            )
    return notes


def paper_tables(cells: pd.DataFrame, bags: Bags, metric: Metric = ACCURACY) -> list[Table]:
    """Tables 1 to 3 in the paper's form, from the rows of `comparisons.cells`. With one encoding,
    Table 3 would be Table 1 again, unless the paper has numbers for it."""
    encodings = cells["encoding"].unique()
    paper = numbers()["table1"]["encoding"]
    encoding = paper if paper in encodings else encodings[0]
    at_one = cells[cells["encoding"] == encoding]
    first = _add_published(1, at_one, bags, metric)
    title = f"Table 1. {metric.heading} by corpus and fusion, encoding {encoding}"
    caption = f"Test {metric.level}: {BY_CELL}"
    caption += OF_PUBLISHED * bool(first["published_mean"].notna().any())
    caption += OF_BAGS * bool(bags)
    caption += WITH_ENDS * any(bag.with_ends is not None for bag in bags.values())
    tables = [
        _by_fusion(first, metric, ["data"], "table1", title, caption),
        _latency(_add_published(2, at_one, bags, metric), encoding, metric),
    ]
    third = _add_published(3, cells, bags, metric)
    if len(encodings) > 1 or third["published_mean"].notna().any():
        title = f"Table 3. {metric.heading} by encoding and fusion"
        has_marks = bool(third["published_mean"].notna().any()) and OF_PUBLISHED not in caption
        caption = f"Marks and rows as in Table 1.{OF_PUBLISHED * has_marks}"
        tables.append(_by_fusion(third, metric, ["data", "encoding"], "table3", title, caption))
    return tables


def _add_published(table: int, cells: pd.DataFrame, bags: Bags, metric: Metric) -> pd.DataFrame:
    """The cells with the columns published_mean, published_std, published_n, disagrees,
    bag_of_words and, for tasks, bag_with_ends; NaN if the paper or the bag of words has no number
    for a cell."""
    rows = []
    for cell in cells.to_dict("records"):
        theirs = None  # a variant has other settings than the paper
        if not cell["variant"] and metric == ACCURACY:
            theirs = published_cell(table, cell["data"], cell["encoding"], cell["fusion"])
        theirs = theirs or Published(np.nan, np.nan, np.nan)
        bag = bags.get((cell["data"], cell["variant"]), BagOfWords(np.nan, 0))
        row = cell | {f"published_{name}": value for name, value in vars(theirs).items()}
        row["disagrees"] = theirs.disagrees(cell["mean"], cell["std"], cell["n"])
        rows.append(row | {"bag_of_words": bag.accuracy, "bag_with_ends": bag.with_ends})
    frame = pd.DataFrame(rows).astype({"bag_with_ends": float})
    return frame if frame["bag_with_ends"].notna().any() else frame.drop(columns="bag_with_ends")


def _by_fusion(
    cells: pd.DataFrame, metric: Metric, keys: list[str], name: str, title: str, caption: str
) -> Table:
    """A row for each value of the keys, a column for each fusion; the paper's row below."""
    keys = [*keys, *if_many(cells, "variant")]
    fusions = cells["fusion"].unique().tolist()
    ours = partial(_ours, digits=metric.digits)
    rows = []
    for _, group in cells.groupby(keys, sort=False):
        first = group.iloc[0]
        labels = [first[key] for key in keys]
        rows.append([*labels, "posfuse", *by_fusion(group, fusions, ours)])
        if group["published_mean"].notna().any():
            rows.append([*labels, "published", *by_fusion(group, fusions, _theirs)])
        rows += [[*labels, bag, *[accuracy] * len(fusions)] for bag, accuracy in _bags(first)]
    marks = DIFFERS * bool(cells["disagrees"].any())
    return Table(name, title, caption, [*keys, "from", *fusions], rows, cells, marks)


def _latency(cells: pd.DataFrame, encoding: str, metric: Metric) -> Table:
    """The paper's Table 2: a row for each fusion of a corpus."""
    return table_of(
        cells,
        [
            (metric.title, partial(over_seeds, digits=metric.digits), "mean", "std", "n"),
            ("published", over_seeds, "published_mean", "published_std", "published_n"),
            ("ms per document", partial(over_seeds, digits=3), "latency_mean", "latency_std", "n"),
            ("published latency", published_latency, *CELL),
            ("parameters", count, "parameters"),
            ("in fusion", count, "fusion_parameters"),
        ],
        keys=["data", "fusion", *if_many(cells, "variant")],
        name="table2",
        title=f"Table 2. {metric.heading} and latency by fusion, encoding {encoding}",
        caption=f"{metric.heading}: as in Table 1. Latency: the forward pass over the test split "
        "in its batches, in milliseconds per document, mean ± standard deviation over the same "
        "runs. Other work of the machine changes it; docs/performance.md compares the operators "
        "under equal conditions. The published latency is that of the paper's Table 2 and Figure "
        "4, which do not name the unit of work.",
    )


def _bags(cell: pd.Series) -> list[tuple[str, str]]:
    """The bags of words of a cell's corpus and their accuracies."""
    accuracies = [(bag, cell.get(column, np.nan)) for column, bag in BAGS.items()]
    return [(bag, f"{accuracy:.2f}") for bag, accuracy in accuracies if not np.isnan(accuracy)]


def _ours(cell: Row, digits: int) -> str:
    text = over_seeds(cell["mean"], cell["std"], cell["n"], digits)
    return f"{text}{MARK}" if cell["disagrees"] else text


def _theirs(cell: Row) -> str:
    return over_seeds(cell["published_mean"], cell["published_std"], cell["published_n"])


@style.styled
def accuracy_latency(cells: pd.DataFrame, metric: Metric = ACCURACY) -> Figure:
    """The metric above latency by fusion, a panel for each data x encoding x variant."""
    caption = (
        f"test {metric.level} and latency in ms per document by fusion; mark: mean over seeds; "
        "line: ± one standard deviation"
    )
    widest = cells.groupby(plot.PANEL).size().max()
    size = (min(3.4, 1.7 + 0.35 * widest), 3.4)
    figure, panels = plot.panel_figure(cells, caption, size, ratios=(1.3, 1))
    for part, (upper, lower) in panels:
        rows = part.to_dict("records")
        for axis, value, unit in (
            (upper, "", metric.percent),
            (lower, "latency_", " ms per document"),
        ):
            for x, row in enumerate(rows):
                mean, std = row[f"{value}mean"], row[f"{value}std"]
                if np.isnan(mean):
                    continue
                color = style.look(row["fusion"]).color
                axis.plot([x, x], [mean - std, mean + std], color=color)
                spread = "" if np.isnan(std) else f" ± {std:.3g}"
                text = f"{plot.label(row)}: {mean:.4g}{spread}{unit}, n={row['n']}"
                plot.dot(axis, x, mean, row["fusion"], 6, text)
            axis.margins(y=0.12)
        upper.set_ylabel(metric.axis)
        lower.set_ylabel("ms per document")
        lower.set_ylim(0, 1.08 * lower.get_ylim()[1])
        plot.name_operators((upper, lower), [row["fusion"] for row in rows])
    return figure
