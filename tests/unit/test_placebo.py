"""What position adds to a gain: the difference of two differences, by hand and from records."""

import math
import shutil

import pytest
from scipy import stats

from posfuse.evidence.collect import collect
from posfuse.statistics.comparisons import Criteria, compare
from posfuse.statistics.second_differences import placebos
from small_records import write_sweep

MODULE = "posfuse.model"
TABLES = {"sinusoidal": "Sinusoidal", "learned": "Learned", "none": "NoTable",
          "rope": "Sinusoidal", "rope_none": "NoTable"}  # fmt: skip


def write(root, encoding, accuracies, settings=None, **more):
    """Runs of each fusion, whose settings are those of conf/encoding."""
    own = {"encoding.table._target_": f"{MODULE}.encoding.{TABLES[encoding]}"}
    if encoding.startswith("rope"):
        own["encoding.attention._target_"] = f"{MODULE}.attention_encoding.Rotary"
    more = {"documents": {"test": 1000}} | more | {"encoding": encoding}
    write_sweep(root, accuracies, settings=own | (settings or {}), **more)


def found_in(root, **options):
    runs, problems = collect(root)
    assert problems == []
    criteria = Criteria(**options)
    return placebos(compare(runs, criteria)[0], criteria)


WITH = {"add": [0.50, 0.60, 0.70, 0.55], "concat": [0.62, 0.71, 0.83, 0.66]}  # 12, 11, 13, 11
WITHOUT = {"add": [0.50, 0.52, 0.51, 0.50], "concat": [0.58, 0.60, 0.60, 0.60]}  # 8, 8, 9, 10


def test_what_position_adds_is_the_difference_of_the_gains_by_hand(tmp_path):
    write(tmp_path, "sinusoidal", WITH)
    write(tmp_path, "none", WITHOUT)
    (row,) = found_in(tmp_path).to_dict("records")
    assert (row["fusion"], row["encoding"], row["placebo"]) == ("concat", "sinusoidal", "none")
    assert row["gains"] == pytest.approx([12, 11, 13, 11])
    assert row["placebo_gains"] == pytest.approx([8, 8, 9, 10])
    assert row["deltas"] == pytest.approx([4, 3, 4, 1])
    assert (row["gain"], row["placebo_gain"], row["mean"]) == pytest.approx((11.75, 8.75, 3.0))
    # squares of the distances from 3: 1, 0, 1, 4
    error = math.sqrt(6 / 3) / 2
    assert row["p_t"] == row["p_holm"] == pytest.approx(2 * stats.t.sf(3 / error, 3))
    reach = stats.t.ppf(0.975, 3) * error
    assert (row["low"], row["high"]) == pytest.approx((3 - reach, 3 + reach))


def test_seeds_are_those_that_all_four_cells_have(tmp_path):
    write(tmp_path, "sinusoidal", WITH)
    write(tmp_path, "none", WITHOUT)
    for run in ("sinusoidal/add/seed=0", "none/concat/seed=3"):
        shutil.rmtree(tmp_path / "tiny" / run)
    (row,) = found_in(tmp_path).to_dict("records")
    assert row["seeds"] == [1, 2]
    assert row["gains"] == pytest.approx([11, 13])
    assert row["deltas"] == pytest.approx([11 - 8, 13 - 9])


def test_a_placebo_differs_in_the_encoding_alone(tmp_path):
    write(tmp_path, "sinusoidal", WITH)
    assert found_in(tmp_path).empty
    write(tmp_path, "none", WITHOUT, data="other")
    assert found_in(tmp_path).empty
    write(tmp_path, "none", WITHOUT, settings={"optim.lr": 2}, variant="optim.lr=2")
    assert found_in(tmp_path).empty
    write(tmp_path, "none", {"add": WITHOUT["add"]})
    assert found_in(tmp_path).empty  # the baseline alone
    write(tmp_path, "none", {"concat": WITHOUT["concat"]})
    assert len(found_in(tmp_path)) == 1


def test_an_encoding_in_attention_prefers_a_placebo_that_keeps_it(tmp_path):
    write(tmp_path, "rope", WITH)
    write(tmp_path, "none", WITHOUT)
    (row,) = found_in(tmp_path).to_dict("records")
    assert row["placebo"] == "none"
    write(tmp_path, "rope_none", {"add": WITH["add"], "concat": WITH["add"]})
    write(tmp_path, "sinusoidal", WITH)
    rows = {row["encoding"]: row for row in found_in(tmp_path).to_dict("records")}
    assert rows["rope"]["placebo"] == "rope_none"
    assert rows["rope"]["deltas"] == pytest.approx([12, 11, 13, 11])
    assert rows["sinusoidal"]["placebo"] == "none"
    assert set(rows) == {"rope", "sinusoidal"}


def test_equal_gains_leave_exactly_nothing_for_position(tmp_path):
    """Sums of accuracies round, and a spread of 1e-14 would give any p-value."""
    write(tmp_path, "sinusoidal", {"add": [0.537, 0.603, 0.71], "concat": [0.62, 0.713, 0.83]})
    write(tmp_path, "none", {"add": [0.2, 0.301, 0.4], "concat": [0.283, 0.411, 0.52]})
    (row,) = found_in(tmp_path).to_dict("records")
    assert row["deltas"] == [0, 0, 0]
    assert row["p_t"] == 1
    # The 1,000 documents of the test split: t = 0.5 / (0.1 / sqrt(3))
    assert row["p_equivalence"] == pytest.approx(stats.t.sf(5 * math.sqrt(3), 2))


def test_equal_differences_of_gains_have_the_spread_of_a_document(tmp_path):
    """One document of 120 more in each seed. A spread by rounding would give any p-value."""
    gains = ([1, 2, 3], [0, 1, 2])
    for encoding, own in zip(("sinusoidal", "none"), gains, strict=True):
        base = [60 / 120, 70 / 120, 80 / 120]
        fused = [b + g / 120 for b, g in zip(base, own, strict=True)]
        write(tmp_path, encoding, {"add": base, "concat": fused}, documents={"test": 120})
    (row,) = found_in(tmp_path).to_dict("records")
    assert row["deltas"] == pytest.approx([100 / 120] * 3)
    assert row["p_t"] == pytest.approx(2 * stats.t.sf(math.sqrt(3), 2))
    assert row["verdict"] == "undecided"


def test_the_family_is_that_of_the_operators_of_the_sweep(tmp_path):
    for encoding, accuracies in (("sinusoidal", WITH), ("none", WITHOUT)):
        write(tmp_path, encoding, accuracies | {"mul": [0.1, 0.3, 0.2, 0.25]})
    found = found_in(tmp_path, primary=("concat",)).set_index("fusion")
    assert found["role"].to_dict() == {"concat": "primary", "mul": "exploratory"}
    assert found["p_holm"]["concat"] == found["p_t"]["concat"]
