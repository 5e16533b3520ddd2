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


def test_a_forecast_has_all_batches_of_both_phases():
    """By hand: a run of 10 batches takes 5 s, one of 30 takes 9 s, so 100 take 9 + 70 / 5 = 23; its
    pretraining takes 2 s, 4 s, and with batches of 64 documents 4 + 20 / 10 = 6 s."""
    short, long = (
        {
            "documents": {"train": 3200}, "settings": {"data.batch_size": 32},
            "seconds": {"fit": seconds}, "pretrain": {"seconds": of_first},
        }
        for seconds, of_first in ((5.0, 2.0), (9.0, 4.0))
    )  # fmt: skip
    assert forecast.whole_seconds(short, long, 30) == pytest.approx(23 + 6)
    del long["pretrain"]
    assert forecast.whole_seconds(short, long, 30) == pytest.approx(23)


def test_a_table_of_runs_of_a_language_model_has_bits(tmp_path):
    rows = "stage,arm,trial,seed,diverged,test_bits_per_byte,best_evaluation,evaluations,classes,"
    rows += (
        "test_documents,max_len,test_bits_per_byte_at_128\ntesting,a,,0,False,2.5,1,2,0,9,64,3.0\n"
    )
    (tmp_path / "runs.csv").write_text(rows)
    results = read_results(tmp_path / "runs.csv", BITS_PER_BYTE)
    assert outcomes(results, BITS_PER_BYTE) == {("a", 0): 2.5}
    assert outcomes(results, BITS_PER_BYTE, "beyond") == {("a", 0): 3.0}
