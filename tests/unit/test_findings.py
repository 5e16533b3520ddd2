"""Every number in docs/findings.md follows from the committed records."""

import re

import pandas as pd
import pytest
import scipy.stats
from statsmodels.stats.multitest import multipletests

from findings import EPOCHS, INSIDE, WORTH, WORTH_OF_CUT
from posfuse.analysis.evidence.published import numbers
from posfuse.analysis.statistics import paired as st
from posfuse.config import CONF_DIR

DOCS = CONF_DIR.parent / "docs"
TEXT = (DOCS / "findings.md").read_text()
SHOWN = re.findall(r"<!-- ([\w.-]+)/(\w+) -->\n(.*?)<!-- end -->", TEXT, re.DOTALL)
SWEEPS = sorted({sweep for sweep, _, _ in SHOWN})
PROSE = " ".join(
    re.sub(r"<!-- ([\w.-]+)/(\w+) -->\n(.*?)<!-- end -->", "", TEXT, flags=re.DOTALL).split()
)
GATES = ("gate_scalar", "gate_cnn")
CHECKED_ABOVE = (
    "-0.22, -0.08, +0.49 and +0.12 points, with p = 0.22, 0.48, 0.17 and 0.67",
    "differences, -0.22 and -0.08, are not (p = 0.22 and 0.48)",
    "differences, +0.49 and +0.12, are not (p = 0.17 and 0.67)",
    "at most 0.43 points on AG News (1,000 documents a run) and 2.78 on IMDB",
    "at most 1.52 points",
    "47.56 % at 4 to 59.44 at 8 for the scalar gate, from 57.22 to 70.33",
    "falls to 0.86 while its validation loss rises to 2.39, with an accuracy at chance (19.22 %",
    "at most 0.05",
    "above 0.05",
)


def records(sweep):
    return pd.read_csv(DOCS / "findings" / sweep / "runs.csv", keep_default_na=False)


@pytest.mark.parametrize(("sweep", "table", "shown"), SHOWN, ids=[f"{s}/{t}" for s, t, _ in SHOWN])
def test_tables_are_the_committed_ones(sweep, table, shown):
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
def test_diagnostics_are_those_of_the_records(sweep):
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
    """Both at the paper's scale, with the t interval of scipy."""
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


def holm(p_values):
    return multipletests(p_values, method="holm")[1]


@pytest.mark.parametrize("sweep", SWEEPS)
def test_verdicts_are_those_of_the_records(sweep):
    """By scipy's paired t-test and statsmodels' adjustment, over all comparisons of a sweep."""
    runs = records(sweep).rename(columns={"settings.model.token_scale": "scale"})
    keys = [key for key in ("data", "scale") if key in runs]
    accuracy = 100 * runs.set_index([*keys, "fusion", "seed"])["test.accuracy"].sort_index()
    rows = cells(DOCS / "findings" / sweep / "verdicts.md")
    compared = {cell for cell in accuracy.index.droplevel("seed") if cell[-1] != "add"}
    assert len(rows) == len(compared)
    assert {(*(r[key] for key in keys), r["fusion"]) for r in rows} == compared
    pairs = [
        [accuracy[(*(r[key] for key in keys), fusion)] for fusion in (r["fusion"], "add")]
        for r in rows
    ]
    tests = [scipy.stats.ttest_rel(*pair) for pair in pairs]
    margins = [
        [scipy.stats.ttest_1samp(one - other, side, alternative=way).pvalue
         for side, way in ((-0.5, "greater"), (0.5, "less"))]
        for one, other in pairs
    ]  # fmt: skip
    differ = holm([test.pvalue for test in tests])
    equivalent = holm([max(margin) for margin in margins])
    for row, pair, test, p, q in zip(rows, pairs, tests, differ, equivalent, strict=True):
        low, high = test.confidence_interval()
        assert row["difference"] == f"{(pair[0] - pair[1]).mean():+.2f}"
        assert row["95 % t"] == f"{low:+.2f} to {high:+.2f}"
        assert row["p t"] == f"{test.pvalue:.3f}"
        assert row["p Holm"] == f"{p:.3f}"
        assert row["p equiv. Holm"] == f"{q:.3f}"
        verdict = "differs" if p <= 0.05 else "equivalent" if q <= 0.05 else "undecided"
        assert row["verdict"] == verdict


def test_no_control_is_decided_and_both_corpora_of_the_paper_are():
    verdicts = {
        sweep: [row["verdict"] for row in cells(DOCS / "findings" / sweep / "verdicts.md")]
        for sweep in ("controls", "agnews", "imdb")
    }
    assert verdicts == {
        "controls": ["undecided"] * 9, "agnews": ["differs"] * 2, "imdb": ["differs"] * 2,
    }  # fmt: skip
    assert "**All nine differences are undecided**" in PROSE
    for part in ("controls/verdicts", "agnews/verdicts", "imdb/verdicts"):
        assert f"<!-- {part} -->" in TEXT


def test_the_papers_own_differences_are_undecided():
    deltas = {
        key: [100 * d for d in numbers()[f"figure{figure}_{data}_delta_vs_add"][fusion]]
        for key, figure, data, fusion in (
            ("agnews concat", 6, "agnews", "concat"),
            ("agnews gate", 6, "agnews", "gate_scalar"),
            ("imdb concat", 7, "imdb", "concat"),
            ("imdb gate", 7, "imdb", "gate_scalar"),
        )
    }
    means = [f"{sum(d) / len(d):+.2f}" for d in deltas.values()]
    p_values = [f"{scipy.stats.ttest_1samp(d, 0).pvalue:.2f}" for d in deltas.values()]
    assert "{}, {}, {} and {} points, with p = {}, {}, {} and {}".format(*means, *p_values) in PROSE
    for one, other in ((0, 1), (2, 3)):
        p = f"(p = {p_values[one]} and {p_values[other]})"
        assert f"own differences, {means[one]} and {means[other]}, are not {p}" in PROSE
    assert min(map(float, p_values)) > 0.05


def scale_surface():
    runs = records("scale_surface").rename(columns={"settings.model.token_scale": "scale"})
    return runs.set_index(["fusion", "scale", "seed"]).sort_index()


def verdicts(sweep):
    """The rows of a sweep's verdicts, which a test above recomputes, by fusion and scale."""
    rows = cells(DOCS / "findings" / sweep / "verdicts.md")
    return {(row["fusion"], row["scale"]): row for row in rows}


def test_a_constant_gate_begins_with_the_ratio_of_addition_and_loses_every_pair():
    runs = scale_surface()
    scales = ("0.25", "0.5", "1.0", "2.0")
    gate, add = (runs.loc[fusion] for fusion in ("gate_constant", "add"))
    name = "inside.norm_ratio"
    first, best = (
        100 * (gate[f"{name}.{which}"].astype(float) / add[f"{name}.{which}"].astype(float) - 1)
        for which in ("first", "best")
    )
    assert first.abs().max() < 6
    lost = 100 * (add["test.accuracy"] - gate["test.accuracy"])
    assert (lost[list(scales)] > 0).sum() == 12
    rows = [verdicts("scale_surface")["gate_constant", scale] for scale in scales]
    assert "by {}, {}, {} and {} points (p = {}, {}, {} and {})".format(
        *(row["difference"].lstrip("-") for row in rows), *(row["p Holm"] for row in rows)
    ) in PROSE  # fmt: skip
    assert [s for s, row in zip(scales, rows, strict=True) if row["verdict"] != "undecided"] == [
        "0.5"
    ]
    for scale, text in (("0.5", "best epoch is {:.0f} to {:.0f} % above addition's"),
                        ("0.25", "At 1/4 it is {:.0f} to {:.0f} % above")):  # fmt: skip
        assert text.format(best[scale].min(), best[scale].max()) in PROSE
    assert "At 1 it is within 7 % of addition's, and at 2 within 15 %" in PROSE
    assert 6 < best["1.0"].abs().max() < 7
    assert 14 < best["2.0"].abs().max() < 15


def test_norm_ratios_of_the_better_operators_at_the_papers_scale():
    at = scale_surface().xs("sqrt_d", level="scale")
    add, ahead = at.loc["add"], at.loc[["concat", *GATES]]
    assert len(ahead) == 9
    lead = ahead["test.accuracy"].unstack("fusion").sub(add["test.accuracy"], axis=0)
    assert (lead > 0).all(axis=None)
    ratio = ahead["inside.norm_ratio.best"].astype(float).unstack("fusion")
    of_add = add["inside.norm_ratio.best"].astype(float)
    above = ratio.gt(of_add, axis=0).stack()
    assert above[above].index.tolist() == [(2, "gate_scalar")]
    text = "{:.2f} % against {:.2f}, with a ratio of {:.2f} against {:.2f}"
    seed = [100 * at["test.accuracy"][f, 2] for f in ("gate_scalar", "add")]
    assert text.format(*seed, ratio["gate_scalar"][2], of_add[2]) in PROSE
    low, high = ratio["gate_cnn"].min(), ratio["gate_cnn"].max()
    scalar = ratio["gate_scalar"]
    assert (ratio["concat"].round().min(), ratio["concat"].round().max()) == (4, 5)
    text = "4 to 5 for concat, {:.2f} to {:.2f} for the cnn gate, {:.2f} and {:.2f} for the scalar"
    assert text.format(low, high, scalar[0], scalar[1]) in PROSE
    assert of_add.round().unique().tolist() == [11]


def test_the_grid_of_scales_ends_before_the_gates_are_at_their_best():
    validation = 100 * scale_surface()["validation.accuracy"].groupby(["fusion", "scale"]).mean()
    grid = ["0.125", "0.25", "0.5", "1.0", "2.0", "4.0", "sqrt_d"]
    best = {f: max(grid, key=lambda s: validation[f, s]) for f in ("add", "concat", *GATES)}
    assert best == {"add": "1.0", "concat": "4.0", "gate_scalar": "sqrt_d", "gate_cnn": "sqrt_d"}
    assert validation["gate_cnn"].idxmax() == "learned"
    rise = [f"{validation[gate, scale]:.2f}" for gate in GATES for scale in ("4.0", "sqrt_d")]
    assert "{} % at 4 to {} at 8 for the scalar gate, from {} to {}".format(*rise) in PROSE


def test_decided_differences_of_the_sweeps_of_scales():
    rows = verdicts("scale_surface")
    assert len(rows) == 40
    p = {cell: f"{row['difference']}, p = {row['p Holm']}" for cell, row in rows.items()}
    decided = {cell for cell, row in rows.items() if row["verdict"] != "undecided"}
    assert decided == {("concat", "4.0"), ("gate_cnn", "0.5"), ("gate_constant", "0.5")}
    assert f"concat at scale 4 ({p['concat', '4.0']}), the cnn gate at 1/2" in PROSE
    assert f"cnn gate at 1/2 ({p['gate_cnn', '0.5']}) and `gate_constant`" in PROSE
    assert f"`gate_constant` at 1/2 ({p['gate_constant', '0.5']};" in PROSE
    text = (
        "The cnn gate is ahead of it by {} points (p = {}), concat by {} (p = {}) and the scalar "
        "gate by {} (p = {})"
    )
    at = [rows[f, "sqrt_d"] for f in ("gate_cnn", "concat", "gate_scalar")]
    assert text.format(*(row[c] for row in at for c in ("difference", "p Holm"))) in PROSE
    imdb = verdicts("scale_imdb")
    assert len(imdb) == 6
    assert {row["verdict"] for row in imdb.values()} == {"undecided"}
    assert f"to +5.93, p = {imdb['concat', '1.0']['p Holm']})" in PROSE
    assert f"to +3.79, p = {imdb['gate_scalar', '1.0']['p Holm']})" in PROSE


@pytest.mark.parametrize(
    ("sweep", "text"),
    [
        ("agnews", "at most {change:.2f} points on AG News ({documents:,} documents a run)"),
        ("imdb", "and {change:.2f} on IMDB ({documents})"),
        ("scale_imdb", "shuffling {documents} test documents a run changes mean accuracy by at "
         "most {change:.2f} points"),
    ],
)  # fmt: skip
def test_what_shuffling_changes(sweep, text):
    runs = records(sweep)
    (documents,) = runs["position.documents"].unique()
    of = runs.groupby(["fusion", "variant"])[["position.accuracy", "position.shuffled"]].mean()
    change = 100 * (of["position.shuffled"] - of["position.accuracy"]).abs().max()
    assert text.format(change=change, documents=documents) in PROSE


@pytest.mark.parametrize("sweep", [s for s in SWEEPS if s.startswith("scale")])
def test_differences_at_the_best_scales_are_adjusted_over_their_table(sweep):
    runs = records(sweep).rename(columns={"settings.model.token_scale": "scale"})
    of = 100 * runs.set_index(["fusion", "scale", "seed"])[["test.accuracy", "validation.accuracy"]]
    of = of.sort_index()
    validation = of["validation.accuracy"].groupby(["fusion", "scale"]).mean()
    best = {f: of["test.accuracy"][validation[[f]].idxmax()] for f in runs["fusion"].unique()}
    rows = cells(DOCS / "findings" / sweep / "best_scale.md")
    tests = [scipy.stats.ttest_rel(best[row["fusion"]], best["add"]) for row in rows]
    for row, p in zip(rows, holm([test.pvalue for test in tests]), strict=True):
        difference = (best[row["fusion"]] - best["add"]).mean()
        assert row["at best"] == f"{difference:+.2f}"
        assert row["p Holm"] == f"{p:.3f}"
        assert row["conclusion"] == "undecided"
        assert p > 0.05


def test_what_a_scale_changes_on_imdb_is_adjusted_over_its_table():
    runs = records("scale_imdb")
    accuracy = runs.set_index(["fusion", "settings.model.token_scale", "seed"])["test.accuracy"]
    accuracy = accuracy.sort_index()
    cells_ = [(f, s) for f in runs["fusion"].unique() for s in ("0.25", "1.0")]
    tests = [scipy.stats.ttest_rel(accuracy[c], accuracy[c[0], "sqrt_d"]).pvalue for c in cells_]
    p = dict(zip(cells_, holm(tests), strict=True))
    assert min(p.values()) > 0.05
    assert f"to +6.01, p = {p['add', '1.0']:.3f})" in PROSE
    assert f"to +7.50, p = {p['gate_scalar', '1.0']:.3f})" in PROSE
    assert f"to +9.11, p = {p['concat', '1.0']:.3f})" in PROSE


def test_addition_memorises_at_the_papers_scale():
    add = scale_surface().loc[("add", "sqrt_d")]
    best = "its best epochs are {}, {} and {}".format(*add["best_epoch"])
    assert best in PROSE
    last = records("repeat").query("fusion == 'add'").sort_values("seed")
    text = "{:.2f} while its validation loss rises to {:.2f}, with an accuracy at chance ({:.2f} %"
    means = [last[f"last.{name}"].mean() for name in ("train_loss", "val_loss", "val_accuracy")]
    assert text.format(means[0], means[1], 100 * means[2]) in PROSE


def test_a_repeat_with_other_dropout_masks_is_given_for_each_seed():
    kept, repeated = (
        100 * runs.query("fusion == 'gate_scalar'").set_index("seed")["test.accuracy"].sort_index()
        for runs in (records("controls").query("data == 'bbc_lead_story'"), records("repeat"))
    )
    texts = [f"{values.mean():.2f} % {where}" for values, where in
             ((kept, "for the scalar gate in the records"), (repeated, "in a repeat"))]  # fmt: skip
    for text in texts:
        assert text in PROSE
    assert "{:.2f}, {:.2f}, {:.2f} and {:.2f}, {:.2f}, {:.2f}".format(*kept, *repeated) in PROSE


def test_every_accuracy_in_the_prose_is_in_a_table():
    """A number with two decimals is an accuracy or a difference. It must be in a table of the
    records, in the paper's table, or in a statement that a test above recomputes."""
    prose = re.sub("|".join(map(re.escape, CHECKED_ABOVE)), "", PROSE)
    tables = " ".join(path.read_text() for path in (DOCS / "findings").rglob("*.md"))
    tables += " ".join(f"{100 * a:.2f}" for a in records("repeat")["test.accuracy"])
    papers = [numbers()["table1"][data].values() for data in ("agnews", "imdb")]
    tables += "".join(f" {mean:.2f}" for cells in papers for mean, _ in cells)
    quoted = re.findall(r"(?<![\w.])[+-]?\d+\.\d\d(?![\d.])", prose)
    assert quoted
    for number in quoted:
        assert re.search(rf"(?<![\d.]){re.escape(number.lstrip('+'))}(?!\d)", tables), number


@pytest.mark.parametrize("sweep", SWEEPS)
def test_each_record_has_a_commit_and_is_listed_once(sweep):
    runs = records(sweep)
    assert runs["commit"].str.fullmatch(r"[0-9a-f]{40}").all()
    assert runs["test.accuracy"].between(0, 1).all()
    key = ["data", "encoding", "fusion", "variant", "seed"]
    assert not runs.duplicated(key).any()
