"""Does a gain survive pretraining: the difference of two differences, from records to the page."""

import pytest
from scipy import stats

from posfuse.evidence.collect import collect
from posfuse.statistics.comparisons import Criteria, compare
from posfuse.statistics.second_differences import pretraining_effect
from small_records import reported, write_sweep

# Gains of 12.5, 10, 12.5, 12.5 and of 2.5, 2.5, 0, 5.
SCRATCH = {"add": [0.50, 0.60, 0.70, 0.55], "concat": [0.625, 0.7, 0.825, 0.675]}
MASKED = {"add": [0.8, 0.8, 0.825, 0.8], "concat": [0.825, 0.825, 0.825, 0.85]}


def write_both(root, table="Sinusoidal", **more):
    of_table = {"encoding.table._target_": f"posfuse.model.encoding.{table}"}
    masked = {"pretrain.name": "masked", "pretrain.max_epochs": 3, **of_table}
    write_sweep(root, SCRATCH, settings=of_table, **more)
    write_sweep(root, MASKED, settings=masked, variant="pretrain=masked", **more)


def found_in(root):
    return pretraining_effect(compare(collect(root)[0], Criteria())[0], Criteria())


def test_what_pretraining_changes_by_hand(tmp_path):
    write_both(tmp_path)
    (row,) = found_in(tmp_path).to_dict("records")
    assert (row["fusion"], row["variant"]) == ("concat", "pretrain=masked")
    assert row["gains"] == pytest.approx([2.5, 2.5, 0, 5])
    assert row["scratch_gains"] == pytest.approx([12.5, 10, 12.5, 12.5])
    assert row["deltas"] == pytest.approx([-10, -7.5, -12.5, -7.5])
    assert row["p_t"] == pytest.approx(stats.ttest_1samp([-10, -7.5, -12.5, -7.5], 0).pvalue)


def test_the_run_from_scratch_differs_in_pretraining_alone(tmp_path):
    write_sweep(tmp_path, MASKED, settings={"pretrain.name": "masked"}, variant="pretrain=masked")
    write_sweep(tmp_path, SCRATCH, settings={"optim.lr": 2}, variant="optim.lr=2")
    write_sweep(tmp_path, SCRATCH, data="other")
    write_sweep(tmp_path, SCRATCH, encoding="rope")
    assert found_in(tmp_path).empty
    write_sweep(tmp_path, SCRATCH)
    assert len(found_in(tmp_path)) == 1


def test_a_placebo_is_not_in_the_family(tmp_path):
    write_both(tmp_path)
    alone = found_in(tmp_path)["p_holm"].item()
    write_both(tmp_path, "NoTable", encoding="none")
    both = found_in(tmp_path).set_index("encoding")
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
