"""Shares of runs and of seeds: runs that solve their task, and seeds that outperform. By hand,
against statsmodels, and by enumeration."""

from itertools import product

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from statsmodels.stats.contingency_tables import mcnemar
from statsmodels.stats.proportion import proportion_confint

from posfuse.report.sections.spread import solved_tables
from posfuse.statistics.cells import solved_best, solved_cells, thresholds
from posfuse.statistics.comparisons import Criteria
from posfuse.statistics.shares import difference_interval, outperforming, outperforms
from small_records import posfuse_report, write_record


def frame(accuracies, data="task", classes=5):
    """Runs of each fusion, from its accuracies in percent by seed."""
    rows = [
        {
            "data": data, "encoding": "sin", "fusion": fusion, "variant": "", "seed": seed,
            "test.accuracy": accuracy / 100, "label_names": ["x"] * classes,
        }
        for fusion, values in accuracies.items()
        for seed, accuracy in enumerate(values)
    ]  # fmt: skip
    return pd.DataFrame(rows)


def test_the_threshold_is_halfway_where_a_cell_is_in_two_groups():
    two_groups = frame({"add": [20, 21, 22], "gate": [21, 75, 70]})
    assert thresholds(two_groups, Criteria()) == {"task": 60}
    # Accuracies of two classes that happen to lie around 75 %.
    text = frame({"add": [73, 74, 76], "gate": [74, 77, 78], "mul": [70, 80, 90]}, "text", 2)
    assert thresholds(text, Criteria()) == {}
    assert thresholds(pd.concat([text, two_groups]), Criteria()) == {"task": 60}
    # Two cells in one group each.
    assert thresholds(frame({"add": [20, 21], "gate": [74, 75]}), Criteria()) == {}
    for near in ([40, 62], [58, 90]):  # one of the two is near the threshold
        assert thresholds(frame({"add": near}), Criteria()) == {}
    assert thresholds(frame({"add": [20, 75]}, classes=0), Criteria()) == {}
    own = Criteria(solved=90.0)
    assert thresholds(pd.concat([text, two_groups]), own) == {"text": 90, "task": 90}


def comparison(one, base, **more):
    row = {"data": "task", "encoding": "sin", "fusion": "gate", "variant": ""}
    return pd.DataFrame([{**row, "scores": one, "baseline_scores": base, **more}])


def test_shares_by_hand():
    add, gate = [20, 21, 59, 70], [90, 75, 20, 60, 95]
    found = solved_cells(
        frame({"add": add, "gate": gate}), comparison(gate[:4], add), {"task": 60.0}
    )
    base, row = found.to_dict("records")
    assert (base["solved"], base["n"], base["share"]) == (1, 4, 25)
    assert np.isnan(base["difference"])
    assert (row["solved"], row["n"], row["share"], row["mean"]) == (4, 5, 80, 68)  # 60 is enough
    expected = stats.binomtest(4, 5).proportion_ci(method="exact")
    assert (row["low"], row["high"]) == pytest.approx((100 * expected.low, 100 * expected.high))
    assert (row["pairs"], row["with"], row["base"]) == (4, 3, 1)
    assert (row["gained"], row["lost"], row["difference"]) == (2, 0, 50)
    assert row["p_mcnemar"] == mcnemar([[1, 2], [0, 1]], exact=True).pvalue == 0.5
    of_difference = difference_interval([100, 100, 0, 0])
    assert (row["difference_low"], row["difference_high"]) == of_difference
    (table,) = solved_tables(found, pd.DataFrame(), "add")
    assert table.rows[0][4:7] == ["60", "1 of 4", "1 to 81"]
    assert table.rows[0][7:] == [""] * 6
    assert table.rows[1][4:8] == ["60", "4 of 5", "28 to 99", "1 of 4"]
    assert table.rows[1][8] == "+50.00"
    assert table.rows[1][10:] == ["2", "0", "0.500"]


def test_other_corpora_have_no_row():
    runs = frame({"add": [20, 70]}, "other")
    assert solved_cells(runs, comparison([], []).iloc[:0], {"task": 60.0}).empty
    assert solved_best(comparison([20], [70], at="1", baseline_at="2"), {}).empty
    assert solved_tables(pd.DataFrame(), pd.DataFrame(), "add") == []


def test_shares_at_each_operators_best_values():
    best = comparison([90, 75, 20], [70, 20, 20], at="2", baseline_at="1, lr 0.1")
    found = solved_best(best, {"task": 60.0})
    (table,) = solved_tables(pd.DataFrame(), found, "add")
    assert table.name == "solved_best"
    assert table.columns[:5] == ["data", "encoding", "fusion", "at", "add's"]
    assert table.rows[0][:5] == ["task", "sin", "gate", "2", "1, lr 0.1"]
    assert table.rows[0][7:10:2] == ["2 of 3", "1 of 3"]


def test_a_threshold_is_of_the_metric_that_is_compared(tmp_path):
    for seed, (fusion, shift) in product(range(3), (("add", 0.0), ("concat", 0.3))):
        share = 0.2 * seed + shift
        scores = {"exact_match": share, "accuracy": 0.9, "bits_per_byte": 2.0 - seed}
        write_record(tmp_path, 0.9, fusion, seed, test=scores)
    posfuse_report(tmp_path, "--metric=exact_match", "--solved=35")
    page = tmp_path / "report" / "index.html"
    table = pd.read_csv(page.parent / "tables" / "solved.csv")
    assert table[["solved", "n"]].to_numpy().tolist() == [[1, 3], [2, 3]]
    assert "its test exact match is at least this number of percent. " in page.read_text()
    _, error = posfuse_report(tmp_path, "--metric=bits_per_byte", "--solved=35")
    assert error == "error: --solved: is in percent, but bits per byte is compared; remove it"


def test_a_threshold_of_no_percent_is_refused(tmp_path):
    for wrong in ("0", "0.35", "101", "nan"):
        line = f"error: --solved: must be in percent, at most 100 (got {wrong}), for example 90"
        assert posfuse_report(tmp_path, "--solved", wrong) == ("", line)
    assert "no finished runs" in posfuse_report(tmp_path, "--solved", "100")[1]


def test_outperforming_by_hand():
    p, low, high = outperforming([1.0, 2.0, -1.0, 0.5])
    assert p == 0.75
    assert (low, high) == pytest.approx(proportion_confint(3, 4, method="beta"))
    # All of n wins: the lower end solves p^n = 0.025.
    assert outperforming([1.0] * 6) == pytest.approx((1, 0.025 ** (1 / 6), 1))
    assert outperforming([1.0] * 5)[1] < 0.5 < outperforming([1.0] * 6)[1]


def test_a_tie_counts_half_and_widens_the_interval():
    p, low, high = outperforming([1.0, 0.0, -1.0, 1e-12, 2.0])
    assert p == pytest.approx((2 + 2 / 2) / 5)
    assert low == pytest.approx(proportion_confint(2, 5, method="beta")[0])
    assert high == pytest.approx(proportion_confint(4, 5, method="beta")[1])
    assert outperforming([0.0, 0.0])[0] == 0.5
    assert np.isnan(outperforming([])).all()


def test_bouthilliers_criterion():
    for low, high, found in (
        (0.51, 0.9, "yes"),
        (0.51, 0.74, "little"),
        (0.5, 1.0, "open"),
        (0.1, 0.49, "loses"),
        (0.26, 0.49, "little"),
        (np.nan, np.nan, "open"),
    ):
        assert outperforms(low, high) == found, (low, high)
