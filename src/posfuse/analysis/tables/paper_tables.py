"""The paper's Tables 1 to 3, ours beside the published numbers."""

from typing import Any

import numpy as np
import pandas as pd

from posfuse.analysis.evidence.bag_of_words import Bags
from posfuse.analysis.evidence.published import Published, numbers, published, published_latency
from posfuse.analysis.tables.table import Table, count, if_many, with_spread

MARK = "†"  # ours and the paper's disagree
BAG = "bag of words"
BY_CELL = (
    "Test accuracy in %: mean ± standard deviation over seeds, number of seeds in brackets. "
    f"{MARK} differs from the published mean by more than the spread of both allows (Welch's "
    "test, p < 0.05); the paper's Table 1 prints spreads that are too small to be standard "
    "deviations over seeds, Table 3 larger ones for the same cells. "
    f"{BAG}: TF-IDF and logistic regression, which know neither position nor fusion, on the same "
    "words and documents."
)


def paper_tables(cells: pd.DataFrame, bags: Bags) -> list[Table]:
    """Tables 1 to 3 in the paper's form, from the rows of `comparisons.cells`."""
    encodings = cells["encoding"].unique()
    paper = numbers()["table1"]["encoding"]
    encoding = paper if paper in encodings else encodings[0]
    at_one = cells[cells["encoding"] == encoding]
    return [
        _by_fusion(
            1, at_one, bags, ["data"], f"Accuracy by corpus and fusion, encoding {encoding}"
        ),
        _latency(at_one, bags, encoding),
        _by_fusion(3, cells, bags, ["data", "encoding"], "Accuracy by encoding and fusion"),
    ]


def _by_fusion(
    number: int,
    cells: pd.DataFrame,
    bags: Bags,
    keys: list[str],
    title: str,
) -> Table:
    """A row for each value of the keys, a column for each fusion; the paper's row beneath."""
    keys = [*keys, *if_many(cells, "variant")]
    fusions = cells["fusion"].unique().tolist()
    rows = []
    for _, group in cells.groupby(keys, sort=False):
        first = group.iloc[0]
        labels = [first[key] for key in keys]
        by_fusion = {cell["fusion"]: cell for cell in group.to_dict("records")}
        theirs = {f: _published(number, by_fusion[f]) for f in by_fusion}
        ours = [_mean(by_fusion[f], theirs[f]) if f in by_fusion else "" for f in fusions]
        rows.append([*labels, "posfuse", *ours])
        if any(theirs.values()):
            rows.append([*labels, "published", *(_their_mean(theirs.get(f)) for f in fusions)])
        if bag := bags.get((first["data"], first["variant"])):
            rows.append([*labels, BAG, *[f"{bag.accuracy:.2f}"] * len(fusions)])
    columns = [*keys, "from", *fusions]
    return Table(
        f"table{number}",
        f"Table {number}. {title}",
        BY_CELL,
        columns,
        rows,
        _tidy(number, cells, bags),
    )


def _latency(cells: pd.DataFrame, bags: Bags, encoding: str) -> Table:
    """The paper's Table 2: a row for each fusion of a corpus."""
    keys = ["data", *if_many(cells, "variant")]
    rows = []
    for _, group in cells.groupby(keys, sort=False):
        for cell in group.to_dict("records"):
            theirs = _published(2, cell)
            rows.append(
                [
                    *(cell[key] for key in keys),
                    cell["fusion"],
                    _mean(cell, theirs),
                    _their_mean(theirs),
                    _latency_text(cell),
                    published_latency(cell["data"], cell["encoding"], cell["fusion"])
                    if not cell["variant"]
                    else "",
                    count(cell["parameters"]),
                    count(cell["fusion_parameters"]),
                ]
            )
        if bag := bags.get((group["data"].iloc[0], group["variant"].iloc[0])):
            labels = [group[key].iloc[0] for key in keys]
            rows.append([*labels, BAG, f"{bag.accuracy:.2f}", "", "", "", "", ""])
    columns = [
        *keys, "fusion", "accuracy", "published", "ms a document", "published latency",
        "parameters", "of fusion",
    ]  # fmt: skip
    return Table(
        "table2",
        f"Table 2. Accuracy and latency by fusion, encoding {encoding}",
        f"{BY_CELL} Latency: the forward pass of the test split in its batches, milliseconds a "
        "document, mean ± standard deviation over the same runs, whatever else their machine did: "
        "docs/performance.md has the operators side by side. The paper's is from its Table 2 and "
        "Figure 4, of an unnamed unit of work.",
        columns,
        rows,
        _tidy(2, cells, bags),
    )


def _tidy(number: int, cells: pd.DataFrame, bags: Bags) -> pd.DataFrame:
    """The cells with the published numbers beside them, a row a cell."""
    rows = []
    for cell in cells.to_dict("records"):
        theirs = _published(number, cell)
        bag = bags.get((cell["data"], cell["variant"]))
        rows.append(
            {
                **cell,
                "published_mean": theirs.mean if theirs else np.nan,
                "published_std": theirs.std if theirs else np.nan,
                "published_n": theirs.n if theirs else np.nan,
                "disagrees": bool(theirs and theirs.disagrees(*_of(cell))),
                "bag_of_words": bag.accuracy if bag else np.nan,
            }
        )
    return pd.DataFrame(rows)


def _published(number: int, cell: dict[Any, Any]) -> Published | None:
    if cell["variant"]:
        return None  # other settings than the paper's
    return published(number, cell["data"], cell["encoding"], cell["fusion"])


def _of(cell: dict[Any, Any]) -> tuple[float, float, int]:
    return cell["mean"], cell["std"], cell["n"]


def _mean(cell: dict[Any, Any], theirs: Published | None) -> str:
    mark = MARK if theirs and theirs.disagrees(*_of(cell)) else ""
    return f"{with_spread(cell['mean'], cell['std'], 2)} ({cell['n']}){mark}"


def _latency_text(cell: dict[Any, Any]) -> str:
    text = with_spread(cell["latency_mean"], cell["latency_std"], 3)
    return f"{text} ({cell['n']})" if text else ""


def _their_mean(theirs: Published | None) -> str:
    return f"{with_spread(theirs.mean, theirs.std, 2)} ({theirs.n})" if theirs else ""
