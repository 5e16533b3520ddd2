"""The cost and the power of a study before it runs, by hand and from short runs."""

from dataclasses import replace

import numpy as np
import pytest

from posfuse.study import configurations, forecast
from posfuse.study.arm_sweep import ArmSweep
from posfuse.study.spec import Assumed, Evaluation, Hypothesis, Study, Tuning
from study_runs import small_study


def test_the_forecast_counts_runs():
    gain = Hypothesis("gain", "t", "concat", "add", "greater")
    part = replace(gain, name="part", minus=["concat_none", "add_none"], family="secondary")
    study = small_study("add_none", "concat_none", hypotheses=[gain, part])
    assert forecast.numbers_of_runs(study) == (0, 16, 32)
    lines = forecast.forecast(study, seconds=90.0)
    assert lines[:2] == [
        "testing: at least 16 runs, about 0.4 core hours",
        "         at most 32 runs, about 0.8 core hours",
    ]
    assert sum("true difference 3: supported in" in line for line in lines) == 2
    less = small_study(hypotheses=[replace(gain, expects="less")])
    assert any("difference -3: supported in" in line for line in forecast.forecast(less, None))


@pytest.mark.parametrize(
    ("arm", "than", "minus", "factor"),
    [
        ("concat", "add", ["concat_none", "add_none"], np.sqrt(2)),
        (["concat", "concat_none"], "add", [], np.sqrt(3 / 4)),
        ("concat", "add", ["concat", "concat_none"], np.sqrt(3 / 2 - 1 / 2)),  # concat cancels
    ],
)
def test_the_spread_of_a_forecast_follows_from_the_weights(arm, than, minus, factor):
    """In units of the spread of a difference of two arms."""
    h = Hypothesis("h", "t", arm, than, "greater", minus, 1.0)
    study = small_study(assumed=Assumed(3.0, 4.0))
    assert study.expected_spread(h) == pytest.approx(4 * factor)


@pytest.mark.parametrize(
    ("changes", "fewest"),
    [({}, 5), ({"base": "mine"}, 30), ({"base": "mine", "settings": {"trainer.evaluations": 6}}, 6),
     ({"tuning": Tuning(grid={"trainer.evaluations": [7, 8]}, seeds=[9])}, 7),
     ({"settings": {"trainer.limit_batches": 50}}, 5)],
)  # fmt: skip
def test_the_cpu_time_of_a_run_follows_from_two_short_ones(changes, fewest, tmp_path, monkeypatch):
    """By hand: 2 s and 0.1 s a batch, 100 batches, a test of 1 s, 2 threads: (2 + 10 + 1) x 2. The
    short run has a batch for each evaluation of an epoch."""
    settings = {"data.batch_size": 4, "data.eval_batch_size": 4, "trainer.evaluations": 1}
    documents = {"train": 400, "validation": 4, "test": 4}
    record = {"documents": documents, "settings": settings, "host": {"threads": 2}}

    class Timed(ArmSweep):
        def run(self, arms, seeds, extra):
            assert seeds == [8]
            self.limits = {arm: own["trainer.limit_batches"] for arm, own in self.values.items()}
            assert set(self.limits.values()) == {fewest, fewest + 20}

        def results(self, arms, seeds):
            times = {arm: {"fit": 2 + 0.1 * n, "test": 1} for arm, n in self.limits.items()}
            return {(arm, 8): record | {"seconds": seconds} for arm, seconds in times.items()}

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(forecast, "ArmSweep", Timed)
    (tmp_path / "mine.yaml").write_text("trainer: {evaluations: 30}")
    study = small_study(searchpath=[str(tmp_path)], **changes)
    seconds = 2 + 0.1 * study.settings.get("trainer.limit_batches", 100) + 1
    assert forecast.cpu_seconds_per_run("mine", study, []) == pytest.approx(2 * seconds)


def test_a_forecast_has_all_batches_of_each_phase():
    """By hand: 1 s, and 1 ms for each evaluated document; a trained one is worth three. With 10
    batches fit takes 3 x 320 + 2 x 640 documents, 3.24 s; with 30, 3 x 960 + 2 x 640, 5.16 s; with
    all, 3 x 3200 + 2 x 640, 11.88 s. The test takes 0.64 s, 1.92 s and 3.2 s. Pretraining takes
    2 s, 4 s and, in batches of 64, 4 + 20 / 10 = 6 s."""
    settings = {"data.batch_size": 32, "data.eval_batch_size": 64, "trainer.evaluations": 2}
    both = {"documents": {"train": 3200, "validation": 640, "test": 3200}, "settings": settings}
    short, long = (
        {**both, "seconds": {"fit": fit, "test": test}, "pretrain": {"seconds": first}}
        for fit, test, first in ((3.24, 0.64, 2.0), (5.16, 1.92, 4.0))
    )
    assert forecast.whole_seconds(short, long, (10, 30)) == pytest.approx(11.88 + 3.2 + 6)
    del long["pretrain"]
    assert forecast.whole_seconds(short, long, (10, 30)) == pytest.approx(11.88 + 3.2)


def test_short_runs_have_no_warm_up_and_do_not_stop_early(tmp_path, monkeypatch):
    """Their few steps may all lie in the warm-up. Arms that differ only in this are timed once."""
    arms = {arm: {"fusion": "add", "optim.warmup": n} for arm, n in (("a", 500), ("b", 9))}
    arms["c"] = {"fusion": "concat", "trainer.limit_batches": 100}
    study = Study("q", settings={"trainer.patience": 1}, arms=arms, testing=Evaluation([5], [1]))
    made = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(ArmSweep, "run", lambda self, *_: made.append(self))
    record = {"host": {"threads": 2}}
    monkeypatch.setattr(ArmSweep, "results", lambda self, *_: {(a, 0): record for a in self.arms})
    monkeypatch.setattr(forecast, "whole_seconds", lambda *given: given[-1] or 10)
    assert forecast.cpu_seconds_per_run("mine", study, []) == pytest.approx(2 * (10 + 10 + 100) / 3)
    (sweep,) = made
    assert sorted(sweep.arms) == ["a.25", "a.5", "c.25", "c.5"]
    for own in configurations.compose(study, sweep.values, []).values():
        assert (own.config.optim.warmup, own.config.trainer.patience) == (0, None)
