"""docs/findings.md says nothing that the committed records do not say."""

import re

import pandas as pd
import pytest

from posfuse.analysis import statistics as st
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
        names = {
            "as they are": "accuracy",
            "tokens shuffled": "shuffled",
            "rows shifted": "shifted",
        }
        for column, name in names.items():
            assert row[column] == f"{100 * of[f'position.{name}'].mean():.2f}"


@pytest.mark.parametrize("sweep", SWEEPS)
def test_what_is_inside_the_runs_is_that_of_the_records(sweep):
    runs = records(sweep).set_index(["data", "fusion", "variant", "seed"])
    for row in cells(DOCS / "findings" / sweep / "inside.md"):
        run = runs.loc[(row["data"], row["fusion"], "", int(row["seed"]))]
        shown = list(row.values())[3:]
        kept = [100 * run["test.accuracy"]]
        kept += [
            run[f"inside.{n}.{w}"] for n in ("norm_ratio", "gate_mean") for w in ("first", "best")
        ]
        assert shown == ["" if k == "" else f"{float(k):.2f}" for k in kept]


def test_every_accuracy_of_the_prose_stands_in_one_of_its_tables():
    """Numbers with two decimals, which is how accuracies and differences are spelt."""
    prose = re.sub(r"<!-- ([\w.-]+)/(\w+) -->\n(.*?)<!-- end -->", "", TEXT, flags=re.DOTALL)
    tables = " ".join(shown for _, _, shown in SHOWN)
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
