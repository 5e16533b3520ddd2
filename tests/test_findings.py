"""docs/findings.md says nothing that the committed records do not say."""

import re

import pandas as pd
import pytest
import scipy.stats

from findings import EPOCHS, INSIDE, WORTH, WORTH_OF_CUT
from posfuse.analysis import statistics as st
from posfuse.analysis.published import numbers
from posfuse.config import CONF_DIR

DOCS = CONF_DIR.parent / "docs"
TEXT = (DOCS / "findings.md").read_text()
SHOWN = re.findall(r"<!-- ([\w.-]+)/(\w+) -->\n(.*?)<!-- end -->", TEXT, re.DOTALL)
SWEEPS = sorted({sweep for sweep, _, _ in SHOWN})


def records(sweep):
    return pd.read_csv(DOCS / "findings" / sweep / "runs.csv", keep_default_na=False)


@pytest.mark.parametrize(("sweep", "table", "shown"), SHOWN, ids=[f"{s}/{t}" for s, t, _ in SHOWN])
def test_tables_are_the_kept_ones(sweep, table, shown):
    assert shown == (DOCS / "findings" / sweep / f"{table}.md").read_text()


def cells(path):
    """Rows of a Markdown table as dicts of its columns."""
    lines = [line for line in path.read_text().splitlines() if line.startswith("|")]
    rows = [[c.strip().replace("\\", "") for c in line.strip("|").split("|")] for line in lines]
    names = [name if rows[0].index(name) == i else f"{name} {i}" for i, name in enumerate(rows[0])]
    return [dict(zip(names, row, strict=True)) for row in rows[2:]]


def spelt(accuracy):
    accuracy = 100 * accuracy
    spread = f" ± {st.spread(accuracy):.2f}" if len(accuracy) > 1 else ""
    return f"{accuracy.mean():.2f}{spread} ({len(accuracy)})"


@pytest.mark.parametrize("sweep", SWEEPS)
def test_accuracies_are_those_of_the_records(sweep):
    runs = records(sweep)
    folder = DOCS / "findings" / sweep
    checked = 0
    for name in ("table1", "by_scale"):
        for row in cells(folder / f"{name}.md") if (folder / f"{name}.md").exists() else []:
            if row.get("from", "posfuse") != "posfuse":
                continue
            of = runs[runs["data"] == row["data"]]
            if "variant" in row:
                of = of[of["variant"] == row["variant"]]
            if "scale" in row:
                scale = of["settings.model.token_scale"]
                numbers = pd.to_numeric(scale, errors="coerce")
                wanted = row["scale"].split(" = ")[0]
                same = scale == wanted
                if re.match(r"[\d/]+$", wanted):
                    same = numbers == (1 / float(wanted[2:]) if "/" in wanted else float(wanted))
                of = of[same]
            for fusion in set(runs["fusion"]) & set(row):
                accuracy = of.loc[of["fusion"] == fusion, "test.accuracy"]
                if row[fusion]:
                    assert row[fusion].rstrip("*†") == spelt(accuracy), (row, fusion)
                    checked += 1
    assert checked


@pytest.mark.parametrize("sweep", SWEEPS)
def test_the_worth_of_position_is_that_of_the_records(sweep):
    runs = records(sweep)
    for row in cells(DOCS / "findings" / sweep / "position.md"):
        of = runs[(runs["data"] == row["data"]) & (runs["fusion"] == row["fusion"])]
        of = of[of["variant"] == row.get("variant", "")]
        assert len(of) == int(row["n"])
        for column, name in (WORTH if "as they are" in row else WORTH_OF_CUT).items():
            assert row[column] == f"{100 * of[f'position.{name}'].mean():.2f}"


@pytest.mark.parametrize("sweep", SWEEPS)
def test_what_is_inside_the_runs_is_that_of_the_records(sweep):
    runs = records(sweep)
    if "settings.model.token_scale" not in runs:
        runs["settings.model.token_scale"] = "sqrt_d"
    runs = runs.set_index(["data", "fusion", "settings.model.token_scale", "seed"]).sort_index()
    for row in cells(DOCS / "findings" / sweep / "inside.md"):
        run = runs.loc[(row["data"], row["fusion"], row["token scale"], int(row["seed"]))]
        shown = list(row.values())[4:]
        kept = [100 * run["test.accuracy"]]
        kept += [run[f"inside.{name}.{which}"] for name in INSIDE for which in EPOCHS]
        assert shown == ["" if k == "" else f"{float(k):.2f}" for k in kept]


@pytest.mark.parametrize("sweep", SWEEPS)
def test_differences_are_those_of_the_records_seed_by_seed(sweep):
    """With both at the paper's scale, by the t interval of scipy's own."""
    runs = records(sweep)
    if "settings.model.token_scale" in runs:
        runs = runs[runs["settings.model.token_scale"] == "sqrt_d"]
    accuracy = runs.set_index(["data", "fusion", "seed"])["test.accuracy"].sort_index()
    checked = 0
    for name, mean, interval in (
        ("paired_differences", "difference", "95 % t"),
        ("best_scale", "at sqrt_d", "95 % t"),
    ):
        path = DOCS / "findings" / sweep / f"{name}.md"
        for row in cells(path) if path.exists() else []:
            pair = (accuracy[row["data"], fusion] for fusion in (row["fusion"], "add"))
            fused, added = (100 * values for values in pair)
            low, high = scipy.stats.ttest_rel(fused, added).confidence_interval()
            assert row[mean].split()[0] == f"{(fused - added).mean():+.2f}"
            assert row[interval] == f"{low:+.2f} to {high:+.2f}"
            checked += 1
    assert checked


@pytest.mark.parametrize("sweep", [s for s in SWEEPS if s.startswith("scale")])
def test_what_a_scale_changes_is_that_of_the_records(sweep):
    runs = records(sweep)
    keys = ["data", "fusion", "settings.model.token_scale", "seed"]
    accuracy = 100 * runs.set_index(keys)["test.accuracy"].sort_index()
    rows = cells(DOCS / "findings" / sweep / "scale_effect.md")
    assert len(rows) == len(runs) / 3 - runs["fusion"].nunique()
    for row in rows:
        pair = (accuracy[row["data"], row["fusion"], scale] for scale in (row["scale"], "sqrt_d"))
        scaled, papers = pair
        low, high = scipy.stats.ttest_rel(scaled, papers).confidence_interval()
        assert row["difference"] == f"{(scaled - papers).mean():+.2f}"
        assert row["95 % t"] == f"{low:+.2f} to {high:+.2f}"


def test_every_accuracy_of_the_prose_stands_in_one_of_its_tables():
    """Numbers with two decimals, which is how accuracies and differences are spelt; a table
    stands in the page or is one that it links to, or it is the paper's."""
    prose = re.sub(r"<!-- ([\w.-]+)/(\w+) -->\n(.*?)<!-- end -->", "", TEXT, flags=re.DOTALL)
    tables = " ".join(path.read_text() for path in (DOCS / "findings").rglob("*.md"))
    papers = [numbers()["table1"][data].values() for data in ("agnews", "imdb")]
    tables += "".join(f" {mean:.2f}" for cells in papers for mean, _ in cells)
    quoted = re.findall(r"(?<![\w.])[+-]?\d+\.\d\d(?![\d.])", prose)
    assert quoted
    for number in quoted:
        assert re.search(rf"(?<![\d.]){re.escape(number.lstrip('+'))}(?!\d)", tables), number


@pytest.mark.parametrize("sweep", SWEEPS)
def test_the_records_are_of_a_commit_and_of_whole_cells(sweep):
    runs = records(sweep)
    assert runs["commit"].str.fullmatch(r"[0-9a-f]{40}").all()
    assert runs["test.accuracy"].between(0, 1).all()
    key = ["data", "encoding", "fusion", "variant", "seed"]
    assert not runs.duplicated(key).any()
