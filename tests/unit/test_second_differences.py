"""What position and what pretraining add to a gain, by hand and from records."""

import math
import shutil

import pytest
from scipy import stats

from posfuse.evidence.collect import collect
from posfuse.statistics.comparisons import Criteria, compare
from posfuse.statistics.second_differences import placebos, pretraining_effect
from small_records import reported, write_sweep

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


def compared(root, **options):
    """The arguments of `placebos` and of `pretraining_effect`."""
    runs, problems = collect(root)
    assert problems == []
    criteria = Criteria(**options)
    return compare(runs, criteria)[0], criteria


WITH = {"add": [0.50, 0.60, 0.70, 0.55], "concat": [0.62, 0.71, 0.83, 0.66]}  # 12, 11, 13, 11
WITHOUT = {"add": [0.50, 0.52, 0.51, 0.50], "concat": [0.58, 0.60, 0.60, 0.60]}  # 8, 8, 9, 10


def test_what_position_adds_is_the_difference_of_gains_over_common_seeds_by_hand(tmp_path):
    write(tmp_path, "sinusoidal", WITH)
    write(tmp_path, "none", WITHOUT)
    (row,) = placebos(*compared(tmp_path)).to_dict("records")
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
    # Seeds are those that all four cells have.
    for run in ("sinusoidal/add/seed=0", "none/concat/seed=3"):
        shutil.rmtree(tmp_path / "tiny" / run)
    (row,) = placebos(*compared(tmp_path)).to_dict("records")
    assert row["seeds"] == [1, 2]
    assert row["gains"] == pytest.approx([11, 13])
    assert row["deltas"] == pytest.approx([11 - 8, 13 - 9])


def test_a_placebo_differs_in_the_encoding_alone(tmp_path):
    write(tmp_path, "sinusoidal", WITH)
    assert placebos(*compared(tmp_path)).empty
    write(tmp_path, "none", WITHOUT, data="other")
    assert placebos(*compared(tmp_path)).empty
    write(tmp_path, "none", WITHOUT, settings={"optim.lr": 2}, variant="optim.lr=2")
    assert placebos(*compared(tmp_path)).empty
    write(tmp_path, "none", {"add": WITHOUT["add"]})
    assert placebos(*compared(tmp_path)).empty  # the baseline alone
    write(tmp_path, "none", {"concat": WITHOUT["concat"]})
    assert len(placebos(*compared(tmp_path))) == 1


def test_an_encoding_in_attention_prefers_a_placebo_that_keeps_it(tmp_path):
    write(tmp_path, "rope", WITH)
    write(tmp_path, "none", WITHOUT)
    (row,) = placebos(*compared(tmp_path)).to_dict("records")
    assert row["placebo"] == "none"
    write(tmp_path, "rope_none", {"add": WITH["add"], "concat": WITH["add"]})
    write(tmp_path, "sinusoidal", WITH)
    rows = {row["encoding"]: row for row in placebos(*compared(tmp_path)).to_dict("records")}
    assert rows["rope"]["placebo"] == "rope_none"
    assert rows["rope"]["deltas"] == pytest.approx([12, 11, 13, 11])
    assert rows["sinusoidal"]["placebo"] == "none"
    assert set(rows) == {"rope", "sinusoidal"}


def test_equal_gains_leave_exactly_nothing_for_position(tmp_path):
    """Sums of accuracies round, and a spread of 1e-14 would give any p-value."""
    write(tmp_path, "sinusoidal", {"add": [0.537, 0.603, 0.71], "concat": [0.62, 0.713, 0.83]})
    write(tmp_path, "none", {"add": [0.2, 0.301, 0.4], "concat": [0.283, 0.411, 0.52]})
    (row,) = placebos(*compared(tmp_path)).to_dict("records")
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
    (row,) = placebos(*compared(tmp_path)).to_dict("records")
    assert row["deltas"] == pytest.approx([100 / 120] * 3)
    assert row["p_t"] == pytest.approx(2 * stats.t.sf(math.sqrt(3), 2))
    assert row["verdict"] == "undecided"


def test_the_family_is_that_of_the_operators_of_the_sweep(tmp_path):
    for encoding, accuracies in (("sinusoidal", WITH), ("none", WITHOUT)):
        write(tmp_path, encoding, accuracies | {"mul": [0.1, 0.3, 0.2, 0.25]})
    found = placebos(*compared(tmp_path, primary=("concat",))).set_index("fusion")
    assert found["role"].to_dict() == {"concat": "primary", "mul": "exploratory"}
    assert found["p_holm"]["concat"] == found["p_t"]["concat"]


# Gains of 12.5, 10, 12.5, 12.5 and of 2.5, 2.5, 0, 5.
SCRATCH = {"add": [0.50, 0.60, 0.70, 0.55], "concat": [0.625, 0.7, 0.825, 0.675]}
MASKED = {"add": [0.8, 0.8, 0.825, 0.8], "concat": [0.825, 0.825, 0.825, 0.85]}


def write_both(root, table="Sinusoidal", **more):
    of_table = {"encoding.table._target_": f"posfuse.model.encoding.{table}"}
    masked = {"pretrain.name": "masked", "pretrain.max_epochs": 3, **of_table}
    write_sweep(root, SCRATCH, settings=of_table, **more)
    write_sweep(root, MASKED, settings=masked, variant="pretrain=masked", **more)


def test_what_pretraining_changes_by_hand(tmp_path):
    write_both(tmp_path)
    (row,) = pretraining_effect(*compared(tmp_path)).to_dict("records")
    assert (row["fusion"], row["variant"]) == ("concat", "pretrain=masked")
    assert row["gains"] == pytest.approx([2.5, 2.5, 0, 5])
    assert row["scratch_gains"] == pytest.approx([12.5, 10, 12.5, 12.5])
    assert row["deltas"] == pytest.approx([-10, -7.5, -12.5, -7.5])


def test_the_run_from_scratch_differs_in_pretraining_alone(tmp_path):
    write_sweep(tmp_path, MASKED, settings={"pretrain.name": "masked"}, variant="pretrain=masked")
    write_sweep(tmp_path, SCRATCH, settings={"optim.lr": 2}, variant="optim.lr=2")
    write_sweep(tmp_path, SCRATCH, data="other")
    write_sweep(tmp_path, SCRATCH, encoding="rope")
    assert pretraining_effect(*compared(tmp_path)).empty
    write_sweep(tmp_path, SCRATCH)
    assert len(pretraining_effect(*compared(tmp_path))) == 1


def test_a_placebo_is_not_in_the_family(tmp_path):
    write_both(tmp_path)
    alone = pretraining_effect(*compared(tmp_path))["p_holm"].item()
    write_both(tmp_path, "NoTable", encoding="none")
    both = pretraining_effect(*compared(tmp_path)).set_index("encoding")
    assert both["role"].to_dict() == {"sinusoidal": "primary", "none": "placebo"}
    assert both.loc["sinusoidal", "p_holm"] == alone


def test_the_report_says_whether_the_gain_survives(tmp_path):
    root = tmp_path / "sweep"
    write_both(root)
    text = reported(root)
    assert "Does the gain over add survive pretraining?" in text
    sentence = (
        "Pretraining adds -9.38 points to this difference (-13.18 to -5.57, 4 seeds, behind)."
    )
    assert sentence in (root / "report/index.html").read_text()
    assert "From scratch" not in text
    assert "-9.38 ± 2.39" in (root / "report/tables/pretraining.md").read_text()
