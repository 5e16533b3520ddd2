"""Which records a study takes for its arms, and which configs it refuses."""

import json

import pytest

from posfuse.analysis.evidence.metric import BITS_PER_BYTE
from posfuse.errors import InputError
from posfuse.runs import records
from posfuse.study import forecast, run_table, stages, sweeps
from posfuse.study.run_table import read_results
from posfuse.study.scores import outcomes
from posfuse.study.spec import Hypothesis, Study
from posfuse.study.sweeps import Sweep
from small_records import write_record

MULTIRUN = """
data: {name: tiny}
encoding: {name: sinusoidal}
fusion: {name: add}
hydra: {overrides: {task: []}, sweeper: {params: null}}
"""
ARMS = {"a": {"fusion": "add"}, "c": {"fusion": "concat"}}


@pytest.fixture
def sweep(tmp_path, monkeypatch):
    """The test sweep of a study with two arms and two seeds, all done."""
    monkeypatch.setattr(sweeps, "OUTPUT", tmp_path)
    found = Sweep(Study("q"), "mine", "test", ARMS)
    for fusion in ("add", "concat"):
        for seed in (0, 1):
            write_record(found.folder, 0.5 + 0.1 * seed, fusion, seed)
    (found.folder / "multirun.yaml").write_text(MULTIRUN)
    return found


def test_results_are_found_by_arm_and_seed(sweep):
    found = sweep.results("ac", [0, 1, 2])
    assert sorted(found) == [("a", 0), ("a", 1), ("c", 0), ("c", 1)]
    assert found["c", 1]["fusion"] == "concat"
    assert found["c", 1]["test"]["accuracy"] == 0.6


def test_an_arm_whose_runs_differ_in_their_settings_is_refused(sweep):
    path = sweep.folder / "tiny/sinusoidal/concat/seed=1" / records.RESULT
    record = json.loads(path.read_text())
    record["settings"]["model.d_model"] = 16
    path.write_text(json.dumps(record))
    with pytest.raises(InputError, match=r"other settings .*\(model.d_model 8 -> 16\); restore"):
        sweep.results("ac", [0, 1])


@pytest.mark.parametrize(
    ("metric", "settings", "message"),
    [
        ("bits_per_byte", {"data": "bbc_lead_story"},
         "arms.add: metric: bbc_lead_story with task=classification has no bits_per_byte; use acc"),
        ("exact_match", {"task": "language_model", "data": "bbc_bytes"},
         "has no exact_match; use accuracy or bits_per_byte"),
        ("bits_per_byte", {"task": "language_model", "data": "copy"},
         "has no bits_per_byte; use accuracy or exact_match or greedy_accuracy"),
        ("greedy_accuracy", {"task": "language_model", "data": "copy"}, None),
    ],
)  # fmt: skip
def test_a_metric_that_the_task_lacks_is_refused_before_anything_runs(metric, settings, message):
    study = Study("q", settings=settings, arms={"add": {"fusion": "add"}}, metric=metric)
    if message is None:
        stages.check_arms("mine", study, [])
        return
    with pytest.raises(InputError, match=message):
        stages.check_arms("mine", study, [])


def test_an_outcome_beyond_needs_longer_tests():
    gain = Hypothesis("gain", "t", "concat", "add", outcome="beyond")
    arms = {"add": {"fusion": "add"}, "concat": {"fusion": "concat"}}
    study = Study("q", settings={"data": "parity"}, arms=arms, hypotheses=[gain])
    stages.check_arms("mine", study, [])
    study.settings["data.test_lengths"] = [20, 40]
    wanted = r"study mine: arms.add: data.test_lengths: needs a length above data.max_len=40 .*40\]"
    with pytest.raises(InputError, match=wanted):
        stages.check_arms("mine", study, [])


def test_a_table_of_runs_keeps_the_test_lengths(tmp_path):
    rows = "stage,arm,trial,seed,diverged,test_accuracy,best_evaluation,evaluations,classes,"
    rows += "test_documents,max_len,test_accuracy_at_80\n"
    rows += "testing,a,,0,False,50.0,1,2,2,100,40,75.0\ntesting,b,,0,False,50.0,1,2,2,100,40,\n"
    (tmp_path / "runs.csv").write_text(rows)
    assert outcomes(read_results(tmp_path / "runs.csv"), outcome="beyond") == {("a", 0): 75.0}


def test_the_time_of_pretraining_is_counted_once():
    record = {"seconds": {"fit": 3.0, "test": 1.0}}
    first = {**record, "pretrain": {"fingerprint": "f", "seconds": 10.0}}
    counted = set()
    assert [run_table._seconds(r, counted) for r in (record, first, first)] == [4, 14, 4]


def test_a_forecast_has_all_batches_of_each_phase():
    """By hand: 1 s, and 1 ms for each evaluated document; a trained one is worth three. With 10
    batches fit takes 3 x 320 + 2 x 640 documents, 3.24 s; with 30, 3 x 960 + 2 x 640, 5.16 s; with
    all, 3 x 3200 + 2 x 640, 11.88 s. The test takes 0.64 s, 1.92 s and 3.2 s. Pretraining takes
    2 s, 4 s and, in batches of 64, 4 + 20 / 10 = 6 s."""
    settings = {"data.batch_size": 32, "data.eval_batch_size": 64, "trainer.evaluations": 2}
    short, long = (
        {
            "documents": {"train": 3200, "validation": 640, "test": 3200}, "settings": settings,
            "seconds": {"fit": fit, "test": test}, "pretrain": {"seconds": first},
        }
        for fit, test, first in ((3.24, 0.64, 2.0), (5.16, 1.92, 4.0))
    )  # fmt: skip
    assert forecast.whole_seconds(short, long, (10, 30)) == pytest.approx(11.88 + 3.2 + 6)
    del long["pretrain"]
    assert forecast.whole_seconds(short, long, (10, 30)) == pytest.approx(11.88 + 3.2)


def test_a_forecast_keeps_the_time_of_a_split_that_is_complete():
    settings = {"data.batch_size": 1, "data.eval_batch_size": 64, "trainer.evaluations": 1}
    documents = {"train": 8, "validation": 8, "test": 8}
    short, long = (
        {
            "documents": documents,
            "settings": settings,
            "seconds": {"setup": 1.0, "fit": t, "test": t},
        }
        for t in (2.0, 3.0)
    )
    assert forecast.whole_seconds(short, long, (10, 30)) == 7


def test_a_table_of_runs_of_a_language_model_has_bits(tmp_path):
    rows = "stage,arm,trial,seed,diverged,test_bits_per_byte,best_evaluation,evaluations,classes,"
    rows += (
        "test_documents,max_len,test_bits_per_byte_at_128\ntesting,a,,0,False,2.5,1,2,0,9,64,3.0\n"
    )
    (tmp_path / "runs.csv").write_text(rows)
    results = read_results(tmp_path / "runs.csv", BITS_PER_BYTE)
    assert outcomes(results, BITS_PER_BYTE) == {("a", 0): 2.5}
    assert outcomes(results, BITS_PER_BYTE, "beyond") == {("a", 0): 3.0}
