"""posfuse report --from TABLE.csv: per-seed results of another study and their comparisons."""

import re
import runpy
import warnings
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from posfuse.errors import InputError
from posfuse.evidence.foreign import Columns, read_foreign
from posfuse.report import foreign_table as foreign_report
from posfuse.statistics import group_comparisons as foreign
from posfuse.statistics import paired as st
from posfuse.statistics.comparisons import Criteria
from posfuse.statistics.group_comparisons import compare_foreign, rankings
from small_records import posfuse_report, reported, write_sweep

# Two tasks x three methods x four seeds; b is 10 points above a with each seed, c is noise about a.
BY_SEED = [(0.5, 0.01), (0.6, -0.01), (0.4, 0.02), (0.55, -0.02)]  # a, and the noise of c
ROWS = pd.DataFrame(
    [
        (task, seed, method, round(base + more, 4))
        for task, (seed, (base, noise)) in product(("one", "two"), enumerate(BY_SEED))
        for method, more in (("a", 0), ("b", 0.1 + noise / 10), ("c", noise))
    ],
    columns=["task", "run", "method", "score"],
)
HEADER = "seed,method,accuracy\n"
SHORT = f"{HEADER}1,a,.5\n2,a,.6\n1,b,.7\n2,b,.9\n"


@pytest.fixture
def table(tmp_path):
    ROWS.to_csv(path := tmp_path / "table.csv", index=False)
    return path


def written(folder, text, baseline="a"):
    """Write a table; the arguments of its report."""
    path = folder / "table.csv"
    path.write_text(text, encoding="utf-8")
    compared = [] if baseline is None else ["--baseline", baseline]
    return ["--from", path, "--out", folder / "out", *compared]


def comparisons(folder):
    return pd.read_csv(folder / "out" / "tables" / "comparisons.csv").to_dict("records")


def refusal(*arguments):
    """The error of `posfuse report`, which is one line."""
    _, error = posfuse_report(*arguments)
    assert error.startswith("error: ")
    assert "\n" not in error
    return error


COLUMNS = Columns("run", "method", "score", ["task"])
OPTIONS = ["--seed", "run", "--compare", "method", "--value", "score", "--by", "task"]


def test_values_are_points_whatever_their_unit(table):
    fractions = read_foreign(table, COLUMNS)
    assert fractions["value"].iloc[0] == pytest.approx(50)
    assert fractions["group"].unique().tolist() == ["one", "two"]
    percent = table.with_name("percent.csv")
    ROWS.assign(score=100 * ROWS["score"]).to_csv(percent, index=False)
    pd.testing.assert_frame_equal(read_foreign(percent, COLUMNS), fractions)
    raw = read_foreign(table, Columns("run", "method", "score", ["task"], unit="raw"))
    assert raw["value"].iloc[0] == 0.5


def test_rows_that_are_left_out_show_that_small_numbers_may_be_percent(tmp_path):
    """0.5 and 0.7 are 50 and 70 % in a table of fractions, and 0.5 and 0.7 % beside 80 %."""
    hard = "seed,method,accuracy,task\n1,a,.5,hard\n1,b,.7,hard\n"
    _, path, *_ = written(tmp_path, f"{hard}1,a,,easy\n1,a,80,easy\n")
    where = {"task": "hard"}
    with pytest.raises(InputError, match=r"the rows of --where and 80 in row 5, so its unit is no"):
        read_foreign(path, Columns(where=where))
    for unit, expected in (("percent", [0.5, 0.7]), ("fraction", [50, 70]), ("raw", [0.5, 0.7])):
        found = read_foreign(path, Columns(where=where, unit=unit))
        assert found["value"].tolist() == pytest.approx(expected)
    path.write_text(f"{hard}1,a,.8,easy\n")
    assert read_foreign(path, Columns(where=where))["value"].tolist() == [50, 70]
    path.write_text(f"{hard}1,a,80,easy\n")
    assert read_foreign(path, Columns(where={"task": "easy"}))["value"].tolist() == [80]


def test_all_comparisons_at_once_agree_with_one_by_one(monkeypatch):
    """Ragged groups, with equal differences and single seeds, against the functions on arrays."""
    monkeypatch.setattr(foreign, "AT_A_TIME", 7)
    keys = pd.DataFrame(product(range(6), "cab", range(6)), columns=["group", "name", "seed"])
    table = keys.sample(frac=0.5, random_state=2)
    noise = np.random.default_rng(0).normal(size=len(table))
    table["value"] = table["seed"].astype(float).where(table["group"] == 0, noise)
    own = {key: runs.set_index("seed")["value"] for key, runs in table.groupby(["group", "name"])}
    criteria = Criteria(margin=0.7)
    found, _ = compare_foreign(table, criteria, all_pairs=True, resolution=0.1)
    welch, _ = compare_foreign(table, criteria, paired=False, all_pairs=True)
    assert len(welch) == 18
    assert found["p_holm"].tolist() == pytest.approx(st.holm(found["p_t"]), nan_ok=True)
    assert 0 < welch["p_t"].isna().sum() < 18
    for row in found.to_dict("records"):
        d = (own[row["group"], row["name"]] - own[row["group"], row["than"]]).dropna()
        assert (row["n"], row["mean"]) == (f"{len(d)}", pytest.approx(d.mean()))
        expected = [*st.t_interval(d, resolution=0.1), st.p_paired_t(d, 0.1)]
        expected.append(st.p_equivalence(d, 0.7, 0.1))
        shown = [row[name] for name in ("low", "high", "p_t", "p_equivalence")]
        assert shown == pytest.approx(expected, nan_ok=True)
    for row in welch.dropna().to_dict("records"):
        one, other = (own[row["group"], row[side]] for side in ("name", "than"))
        assert row["n"] == f"{len(one)}, {len(other)}"
        tests = [
            stats.ttest_ind(one + shift, other, equal_var=False, alternative=side)
            for shift, side in ((0, "two-sided"), (0.7, "greater"), (-0.7, "less"))
        ]
        p, *one_sided = (test.pvalue for test in tests)
        shown = [row[name] for name in ("mean", "low", "high", "p_t", "p_equivalence")]
        ends = tests[0].confidence_interval()
        assert shown == pytest.approx([one.mean() - other.mean(), *ends, p, max(one_sided)])


def test_values_of_independent_runs_that_are_equal_up_to_rounding_have_no_spread():
    values = {"a": [0.1 + 0.2, 0.3, 0.3], "b": [0.2] * 3, "c": [0.2, 0.3, 0.4]}
    rows = [(0, name, seed, v) for name, own in values.items() for seed, v in enumerate(own)]
    table = pd.DataFrame(rows, columns=["group", "name", "seed", "value"])
    found, notes = compare_foreign(table, Criteria(margin=0.01), paired=False, all_pairs=True)
    tested = found.set_index(["name", "than"])["p_t"].notna()
    assert tested.to_dict() == {("a", "c"): True, ("a", "b"): False, ("c", "b"): True}
    assert len(notes) == 1


def test_names_without_a_common_seed_are_not_compared(tmp_path):
    options = written(tmp_path, SHORT + "3,c,.7\n4,c,.8\n")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        printed = reported(*options)
        assert printed.startswith(
            "Which values of method differ in accuracy from a?\n1 comparison: 1 undecided.\n"
        )
        assert "table: c and a: not compared, because they have no seeds in common" in printed
        written(tmp_path, SHORT.replace("1,b", "3,b").replace("2,b", "4,b"))
        nothing = "nothing to compare (table: b and a: not compared, because they have no seeds in "
        assert nothing in refusal(*options)
        reported(*options, "--unpaired")


def test_equal_differences_are_judged_by_the_resolution(tmp_path):
    options = written(tmp_path, f"{HEADER}1,a,50\n2,a,52\n3,a,51\n1,b,53\n2,b,55\n3,b,54\n")
    few = "no test, because there are fewer than two seeds, or the values or diff"
    printed = reported(*options)
    assert few in printed
    assert "\n1 comparison: 1 not tested.\n" in printed
    assert "undecided" not in printed
    assert [row["verdict"] for row in comparisons(tmp_path)] == ["not tested"]
    assert "no test" not in reported(*options, "--resolution", "0.5")
    (row,) = comparisons(tmp_path)
    assert row["p_t"] == pytest.approx(2 * stats.t.sf(3 * np.sqrt(3) / 0.5, 2), rel=1e-4)


def test_all_pairs_and_the_ranking(table):
    results = read_foreign(table, COLUMNS)
    found, _ = compare_foreign(results, Criteria(margin=9.0), all_pairs=True)
    assert len(found) == 6
    ranked = rankings(results, found, Criteria()).iloc[0].tolist()
    assert ranked == ["one", "b 61.2 > a 51.2 = c 51.2", 1, 2]


def test_a_ranking_marks_a_name_that_is_behind_on_the_common_seeds(tmp_path):
    """Seeds 0 to 3 have both names. Seeds 4 and 5, of a alone, raise its mean above that of b."""
    common = {"a": [50, 51, 50, 51], "b": [60, 61.5, 60, 61.5]}
    cells = [f"{i},{name},{v}\n" for name, values in common.items() for i, v in enumerate(values)]
    path = tmp_path / "table.csv"
    path.write_text("".join([HEADER, *cells, "4,a,99\n5,a,99\n"]))
    results = read_foreign(path, Columns())
    found, _ = compare_foreign(results, Criteria(margin=9.0), all_pairs=True)
    assert rankings(results, found, Criteria())["ranking"].tolist() == ["a 66.7 < b 60.8"]


def test_losses_are_ranked_from_the_lowest(tmp_path):
    losses = {"a": [0.31, 0.32, 0.33, 0.30], "b": [0.21, 0.225, 0.23, 0.20]}
    cells = [f"{i},{name},{v}\n" for name, values in losses.items() for i, v in enumerate(values)]
    options = written(tmp_path, "".join(["seed,method,loss\n", *cells]), baseline=None)
    options += ["--value", "loss", "--unit", "raw", "--margin", "0.01"]
    printed = reported(*options, "--all-pairs", "--lower-is-better")
    assert "Lower values of loss are better." in printed
    assert "b 0.216 > a 0.315" in printed
    assert "a 0.315 > b 0.216" in reported(*options, "--all-pairs")
    for more, verdict in (([], "behind"), (["--lower-is-better"], "ahead")):
        reported(*options, "--baseline", "a", *more, draw=bool(more))
        (row,) = comparisons(tmp_path)
        assert (row["name"], row["verdict"]) == ("b", verdict)
        assert row["mean"] == pytest.approx(-0.09875)
        assert row["low"] < row["mean"] < row["high"]
    svg = (tmp_path / "out" / "figures" / "forest.svg").read_text()
    assert "Difference from a in loss (negative: better)" in svg
    assert "accuracy" not in svg


def of_tasks(cells):
    """Rows of (set, task, method, seed, value)."""
    frame = pd.DataFrame(cells, columns=["set", "task", "method", "seed", "accuracy"])
    return frame.to_csv(index=False)


@pytest.mark.parametrize("overall", [[], ["--overall", "seed"]])
def test_a_huge_value_of_one_method_changes_no_other_comparison(overall, tmp_path):
    """Equal differences are found by a tolerance that depends on the compared values alone."""
    noise = np.random.default_rng(0).normal(0, 0.01, (6, 2))
    cells = [
        ("", task, m, seed, 1 + 0.05 * (m == "b") + noise[seed, int(m == "b")])
        for seed, task, m in product(range(6), ("x", "y"), "ab")
    ]
    huge = [("", task, "c", seed, 1e13 if seed == 0 else 1.0) for seed in range(6) for task in "xy"]
    rows = []
    for given in (cells, cells + huge):
        options = written(tmp_path, of_tasks(given))
        reported(*options, "--by", "task", "--unit", "raw", "--margin", "0.01", *overall)
        rows.append([row for row in comparisons(tmp_path) if row["name"] == "b"])
        assert all(row["p_t"] < 0.01 for row in rows[-1])
    first, second = ([[row[k] for k in ("mean", "low", "high", "p_t")] for row in r] for r in rows)
    assert second == pytest.approx(np.array(first))


def test_the_mean_over_groups_is_tested_over_seeds_or_groups(tmp_path):
    """40 tasks, each with another noise: none is decided alone, the mean is. That tasks are of two
    kinds, easy and hard, says nothing about the runs."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(product(range(40), "ab", range(3)), columns=["task", "method", "seed"])
    means = 30 + 40 * (frame["task"] > 20) + 9 * (frame["method"] == "b")
    frame = frame.assign(set=frame["task"] // 8, accuracy=means + rng.normal(0, 6, len(frame)))
    options = [*written(tmp_path, frame.to_csv(index=False)), "--by", "set,task", "--margin", "1"]
    keys = ["set", "task", "seed"]
    wide = frame.pivot_table(index=keys, columns="method", values="accuracy")
    delta = wide["b"] - wide["a"]
    alone, _ = compare_foreign(read_foreign(options[1], Columns(by=keys[:2])), Criteria("a"))
    assert alone["verdict"].tolist() == ["undecided"] * 40
    for overall, how, count in (
        ("seed", "paired by seed, for", "n counts seeds, each with its mean"),
        ("set,task", "paired by set, task, for", "n counts the values of set, task,"),
        ("set", "paired by set, for", "n counts the values of set, each"),
    ):
        printed = reported(*options, "--overall", overall)
        first = printed.splitlines()[1]
        assert first == "1 comparison of the mean over 40 groups: 1 different."
        assert how in printed
        assert count in printed
        (row,) = comparisons(tmp_path)
        unit = overall.split(",")
        of_unit = delta.groupby(unit).mean()
        assert row["n"] == len(of_unit)
        counted = "seeds" if overall == "seed" else f"values of {', '.join(unit)}"
        assert f"), {row['n']} {counted}\n" in printed
        page = (tmp_path / "out" / "index.html").read_text()
        assert f'<th scope="col">{counted}</th>' in page
        assert row["p_t"] == pytest.approx(stats.ttest_1samp(of_unit, 0).pvalue)
        assert row["mean"] == pytest.approx(delta.mean())
        few = "fewer than 8 seeds" if overall == "seed" else "n is below 8"
        assert printed.count("caution:") == printed.count(f"caution: {few}\n") == (len(of_unit) < 8)


def test_equal_differences_of_means_have_no_test(tmp_path):
    """Means of the same values in another order, and rounded means, differ in their last digits."""
    rng, permuted, thirds = np.random.default_rng(1), [], []
    values = rng.normal(50, 20, 5)
    for seed in range(6):
        for task, value in enumerate(rng.permutation(values)):
            permuted += [("", task, m, seed, value + (m == "b")) for m in "ab"]
    for seed, task, m in product(range(3), range(3), "ab"):  # b is better on one of three tasks
        thirds.append(("", task, m, seed, 80 + (task == 0) * (seed + (m == "b")) / 10))
    for cells, mean, how in ((permuted, 1, ["--unpaired"]), (thirds, 0.1 / 3, [])):
        options = [*written(tmp_path, of_tasks(cells)), "--by", "task", "--overall", "seed", *how]
        assert "no test" in reported(*options)
        (row,) = comparisons(tmp_path)
        assert (row["mean"], row["p_t"]) == pytest.approx((mean, np.nan), nan_ok=True)


def test_a_raw_value_may_be_named_points(tmp_path):
    options = written(tmp_path, SHORT.replace("accuracy", "points"))
    values = ["--value", "points", "--unit", "raw", "--margin", "0.05"]
    reported(*options, *values)
    page = (tmp_path / "out" / "index.html").read_text()
    assert "Differences are in the units of points." in page
    assert "in percent" not in page


def test_a_unit_that_lacks_a_group_is_left_out(tmp_path):
    """With its other groups alone its mean would be one of other tasks."""
    cells = [
        ("x", task, method, s, 50 + 10 * (task == "hard") + s + (s / 10 + 1) * (method == "b"))
        for task, method, s in product(("easy", "hard"), "ab", range(4))
    ]
    for lost, left in ((["hard"], 1), (["easy", "hard"], 0)):
        without = [cell for cell in cells if not (cell[2:4] == ("b", 3) and cell[1] in lost)]
        options = [*written(tmp_path, of_tasks(without)), "--by", "task", "--overall", "seed"]
        line = f"b: 1 of 4 are left out, because they lack a group: 3 has {left} of 2"
        if not left:  # nothing of b was left out
            line = "b and a: only one of them has some seeds, which are left out"
        assert line in reported(*options)
        (row,) = comparisons(tmp_path)
        assert (row["n"], row["mean"]) == (3, pytest.approx(1.1))
    written(tmp_path, of_tasks([cell for cell in cells if cell[1:3] != ("hard", "b")]))
    line = "nothing to compare (b: 4 of 4 are left out, because they lack a group: 0 has"
    assert line in refusal(*options)


def test_columns_of_by_are_kept_apart(tmp_path):
    groups = (("a b", "c", 50), ("a", "b c", 60), ('"a b"', "c", 70), ("a", "b", 80))
    cells = [(s, t, m, seed, v) for (s, t, v), m, seed in product(groups, "ab", (1, 2))]
    _, path, *_ = written(tmp_path, of_tasks(cells))
    found = read_foreign(path, Columns(by=["set", "task"]))
    assert found.groupby("group", sort=False)["value"].first().to_dict() == {
        '"a b" c': 50, 'a "b c"': 60, r'"\"a b\"" c': 70, "a b": 80
    }  # fmt: skip
    assert read_foreign(path, Columns(by=["set", "task", "set"]))["group"].nunique() == 4


def test_too_many_comparisons_are_refused(tmp_path):
    rows = "".join(f"1,m{i},50\n" for i in range(2_000))
    options = written(tmp_path, HEADER + rows, baseline=None)
    line = "error: --all-pairs: makes 1,999,000 comparisons, above the limit of 1,000,000; "
    assert refusal(*options, "--all-pairs").startswith(line)


def test_a_long_table_is_shown_in_part(tmp_path, monkeypatch):
    monkeypatch.setattr(foreign_report, "MOST_ROWS", 10)
    rows = [f"{s},m{i},{i % 30 + s}\n" for i in range(40) for s in (30, 40)]
    printed = reported(*written(tmp_path, HEADER + "".join(rows), baseline="m0"))
    assert len(comparisons(tmp_path)) == 39
    line = "These are the first 10 of 39 rows; the CSV file has all."
    assert line in (tmp_path / "out" / "index.html").read_text()
    assert "and 19 more notes of this kind" in printed
    assert "cautions are about the first 10 comparisons" in printed
    assert printed.count("no test, because") == 20


def test_the_command_writes_tables_and_a_page(table, tmp_path):
    out = tmp_path / "out"
    options = ("--from", table, *OPTIONS, "--baseline", "a", "--out", out)
    printed = reported(*options, draw=True)
    assert "\n4 comparisons: 2 different, 2 undecided.\n" in printed
    assert (out / "figures" / "forest.png").exists()
    verdicts = [row["verdict"] for row in comparisons(tmp_path)]
    assert verdicts == ["ahead", "undecided", "ahead", "undecided"]
    page = (out / "index.html").read_text()
    for text in ("4 comparisons: 2 different", "--baseline a", "Accuracies are in percent."):
        assert text in page
    rows = re.findall(r'<tr class="(ahead|undecided)">', page)  # of the table at its top
    assert rows == ["ahead", "ahead", "undecided", "undecided"]
    assert page.count("<p>After Holm&#39;s adjustment: p ") == 4


def test_a_report_does_not_remove_or_overwrite_its_own_table(table, tmp_path):
    """Neither a file of an earlier report nor one with the name of a file of the new report."""
    out, new = tmp_path / "out", tmp_path / "new"
    write_sweep(tmp_path / "mine", {"add": [0.5, 0.6], "concat": [0.6, 0.65]})
    reported(tmp_path / "mine", "--out", out)
    (new / "tables").mkdir(parents=True)
    (new / "tables" / "rankings.csv").symlink_to(target := tmp_path / "linked.csv")
    for folder, file in (
        (out, out / "runs.csv"), (out, out / "tables" / "paired_tests.csv"),
        (new, new / "tables" / "comparisons.csv"), (new, target),
    ):  # fmt: skip
        file.write_bytes(table.read_bytes())
        assert refusal("--from", file, *OPTIONS, "--baseline", "a", "--out", folder) == (
            f"error: --out: the new report may remove or overwrite {file}; give another folder "
            f"than {folder}"
        )
        assert file.read_bytes() == table.read_bytes()
    reported("--from", table, *OPTIONS, "--baseline", "a", "--out", out)
    assert not (out / "runs.csv").exists()  # it belonged to the sweep's report


WRONG_ROWS = [  # a text of the table, its replacement, and the message
    ("one,1,a,0.6\n", "one,1,a,60\n", "fractions (0.5 in row 2) and percent (60 in row 5); "),
    ("one,1,a,0.6\n", "one,1,a,\n", "row 5: score is ''; give a number up to 1e+100"),
    ("one,1,a,0.6\n", "one,1,a,-0.6\n", "row 5: score -0.6 is not an accuracy; for other"),
    ("method,score", "method,method", "the header has 'method' twice; rename one of the"),
]  # fmt: skip
OF_SWEEPS = (("--primary", "b"), ("--select-seeds", "0"), ("--solved", "60"), ("--effect", "2"),
             ("--claims", "mine.yaml"))  # fmt: skip
UNPRINTABLE = ("--out", "r\udcff"), ("--where", "method=\udcff"), ("--by", "\x08")
MISTAKES = [
    (["--value", "acc"], "no column 'acc' among task, run, method, score; name it by"),
    (["--by", "task,size"], "no column 'size' among task, run, method, score"),
    (["--by", ""], "row 14: seed 0 of a is given twice for table; separate the rows with --by"),
    (["--where", "task=three"], "no row has task=three; use one of one, two"),
    (["--baseline", "z"], "--baseline: no row has method=z; use one of a, b, c"),
    (["--where", "task=one", "--where", " task=two"],
     "--where: task is given twice; give each column one value"),
    (["--where", "task"], "--where: must be COLUMN=VALUE (got 'task')"),
    (["--all-pairs"], "--all-pairs: has no baseline; remove --baseline or --all-pairs"),
    (["--resolution", "0"], "--resolution: must be above 0 (got 0)"),
    (["--resolution", "1", "--unpaired"], "--resolution: is for paired differences of sing"),
    (["--unit", "raw"], "--margin: must be given with --unit raw, in the units of score, "),
    (["--by", "", "--overall", "run"], "--overall: is the mean over the groups of --by; give"),
    (["--overall", "method"], "--overall: must be run, or columns of --by (got method)"),
    (["--overall", "task", "--unpaired"], "--unpaired: is for --overall run; remove it, bec"),
    (["--overall", "run", "--resolution", "1"], "--resolution: is for paired differences of"),
    *(([option, value], f"{option}: is for the folder of a sweep, not for --from; remove it")
      for option, value in OF_SWEEPS),
    *((option, f"the command line: {option[1]!r} ") for option in UNPRINTABLE),
]  # fmt: skip


def test_each_mistake_is_one_line(table, tmp_path):
    text = table.read_text()
    arguments = ["--from", table, *OPTIONS, "--baseline", "a", "--out", tmp_path / "never"]
    for old, new, message in WRONG_ROWS:
        assert old in text
        table.write_text(text.replace(old, new, 1))
        assert message in refusal(*arguments)
    table.write_text(text)
    for options, message in MISTAKES:
        assert message in refusal(*arguments, *options)
    assert not (tmp_path / "never").exists()


def test_blanks_around_names_do_not_count(tmp_path):
    _, path, *_ = written(tmp_path, SHORT)
    expected = read_foreign(path, Columns())
    assert expected["value"].tolist() == [50, 60, 70, 90]
    for text in (
        SHORT.replace("\n", ",\n") + ",,,\n",  # an empty last column and row, as of a spreadsheet
        SHORT.replace("seed,method", " seed, method ").replace("1,a", "1 ,\u00a0a"),
    ):
        path.write_text(text)
        pd.testing.assert_frame_equal(read_foreign(path, Columns()), expected)


REFUSED = [  # what is added to SHORT, or the whole file, and the message
    ("2,a ,.6\n", "row 6: seed 2 of a is given twice"),
    ("2,a\u200b,.6\n", r"method: 'a' and 'a\u200b' (U+200B) look alike but differ; write"),
    ("\uff12,c,.6\n", "seed: '2' and '\uff12' (U+FF12) look alike"),
    ("2,a\x07,.6\n", r"method: 'a\x07' has the character U+0007, which cannot be shown; remove"),
    ("2,\u200b,.6\n", "row 6: method is empty; fill it in"),  # a name that shows nothing
    ("seed,method,meth\u00adod,accuracy\n1,a,b,.5\n1,b,a,.6\n",
     r"the header: 'method' and 'meth\xadod' (U+00AD) look alike but differ"),
    (f"2,c,{'1' * 400}\n", "; give a number up to 1e+100, or remove"),
    ("2,c,n/a\n", "accuracy is 'n/a'; give a number up to 1e+100, or remove"),
    ("\n\n2,c,x\n", "row 8: accuracy is 'x'"),  # behind blank lines
    ('1,"c\nd",.5\n2,c,x\n', "row 8: accuracy is 'x'"),  # behind a name of two lines
    ("2,c,.6,8\n", "line 6 and the header differ in their number of fields (4 and 3); "),
    (HEADER.strip() + ",\n1,a,.5\n", "line 2 and the header differ in their number of fields (3 "),
    (" ", "is empty; give a header and one row per run"),
    (HEADER, "has a header and no rows; give a header and one row per run"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message"), REFUSED)
def test_a_table_that_cannot_be_read_is_refused_in_one_line(tmp_path, text, message):
    is_whole = text.startswith((" ", "seed"))
    options = written(tmp_path, text if is_whole else SHORT + text)
    error = refusal(*options, "--unit", "raw", "--margin", "1")
    assert error.startswith(f"error: {options[1]}: ")
    assert message in error
    assert not (tmp_path / "out").exists()


def test_a_file_that_is_no_table_is_one_line(tmp_path):
    for name, message in {
        "absent.csv": "cannot be read (No such file or directory); give a CSV file",
        "": "cannot be read (Is a directory); give a CSV file",
    }.items():
        assert refusal("--from", tmp_path / name) == f"error: {tmp_path / name}: {message}"
    (tmp_path / "a\x08b.csv").write_text(SHORT)
    message = "a\\x08b.csv' has the character U+0008, which"
    assert message in refusal("--from", tmp_path / "a\x08b.csv")


def test_a_folder_and_a_table_exclude_each_other():
    for arguments in ((), (Path(), "--from", "b.csv")):
        assert posfuse_report(*arguments)[1] == 2
    of_tables = ["--lower-is-better"], ["--by", "x"], ["--where", "a=b"], ["--overall", "x"]
    for options in (*of_tables, ["--seed", "seed"], ["--by="], ["--compare=method"]):  # defaults
        message = f"error: {options[0].partition('=')[0]}: is for --from TABLE.csv; remove it"
        assert refusal(".", *options) == message


def test_the_page_about_length_generalization_is_current():
    docs = Path(__file__).parents[2] / "docs"
    made = runpy.run_path(str(docs / "length_generalization.py"))["page"]()
    assert made == (docs / "length_generalization.md").read_text(encoding="utf-8")
