"""tuning.method: tpe against Optuna's own loop, and a search that is stopped and continued."""

import sys
from pathlib import Path

import pytest

from posfuse.study import stages
from posfuse.study.arm_sweep import ArmSweep
from posfuse.study.spec import Evaluation, Range, Tuning
from posfuse.study.stages import Stages
from refusals import refusal
from study_runs import small_study

optuna = pytest.importorskip("optuna")
N = 14  # Optuna's first ten trials are random draws
RANGES = {"optim.lr": Range(1e-4, 1e-1), "model.token_scale": Range(0.1, 10)}


def study(method="tpe"):
    return small_study(tuning=Tuning(random=RANGES, trials=N, method=method, seeds=[100, 101]))


def quality(arm, values):
    """Best at a learning rate of 0.01 for add, of 0.001 for concat, and at scale 1."""
    lr, scale = values["optim.lr"], values["model.token_scale"]
    best = {"add": 0.01, "concat": 0.001}[arm]
    return 1 / (1 + abs(lr / best - 1) + abs(scale - 1))


def of_each(_, newest):
    return {arm: quality(arm, *own.values()) for arm, own in newest.items()}


def test_the_trials_are_those_of_optunas_own_loop():
    found = stages.propose(study(), of_each)
    for arm, own in found.items():
        theirs = []

        def objective(trial, arm=arm, theirs=theirs):
            draw = trial.suggest_float
            theirs.append({key: draw(key, r.least, r.most, log=True) for key, r in RANGES.items()})
            rounded = {key: float(f"{value:.4g}") for key, value in theirs[-1].items()}
            return quality(arm, rounded)

        sampler = optuna.samplers.TPESampler(seed=0)
        optuna.create_study(direction="maximize", sampler=sampler).optimize(objective, N)
        assert list(own) == [f"t{i:02}" for i in range(N)]
        for mine, other in zip(own.values(), theirs, strict=True):
            assert mine == pytest.approx(other, rel=1e-3)
    assert found["add"]["t00"] == found["concat"]["t00"]
    assert found["add"]["t13"] != found["concat"]["t13"]


def test_no_two_trials_have_the_same_values():
    """They would be one run, and a study refuses arms with one config."""
    own = study()
    own.tuning.random = {"optim.lr": Range(1.0, 1.018)}  # 19 values of four digits
    found = stages.propose(own, lambda _, newest: dict.fromkeys(newest, 0.5))["add"]
    for trials in (found, own.trials()):
        assert len({values["optim.lr"] for values in trials.values()}) == N
    own.tuning.random = {"optim.lr": Range(1.0, 1.005)}
    assert len(own.trials()) < N
    line = refusal(stages.propose, own, lambda _, newest: dict.fromkeys(newest, 0.5))
    assert "arms.add: tuning.random has no further values; widen" in line


def test_without_optuna_it_is_one_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    line = "tuning.method: tpe needs Optuna; run pip install 'posfuse[optuna]'"
    assert refusal(stages.propose, study(), of_each) == line


@pytest.fixture
def sweeps(monkeypatch):
    """Sweeps whose runs take no time; a dictionary of the runs that are done."""
    done: dict = {}
    started: list = []

    class Fake(ArmSweep):
        def run(self, names, seeds, extra):
            started.extend(f"{name}.{seed}" for name in names for seed in seeds)
            done.update({(n, s): record(n[:-4], self.values[n]) for n in names for s in seeds})

        def results(self, names, seeds):
            return {key: done[key] for n in names for s in seeds if (key := (n, s)) in done}

        def folders(self, names, seeds):
            return {(n, s): Path(n) for n in names for s in seeds}

    monkeypatch.setattr(stages, "ArmSweep", Fake)
    monkeypatch.setattr(stages, "compose", lambda *_: {})
    return done, started


def record(arm, values):
    scores = {split: {"accuracy": quality(arm, values)} for split in ("validation", "test")}
    return {**scores, "best_evaluation": 2, "evaluations": 3, "settings": {"data.max_len": 8},
            "documents": {"test": 9}, "seconds": {}, "host": {"threads": 1}, "fingerprint": "",
            "commit": "", "label_names": ["a", "b"], "data": "tiny", "fusion": arm}  # fmt: skip


def stages_of(own):
    return Stages("mine", own, [], lambda _: None)


def test_a_study_that_is_stopped_runs_each_trial_once_and_chooses_for_each_arm(sweeps):
    done, started = sweeps
    first = stages_of(study())
    chosen = first.tune("", first.study)
    assert len(done) == 2 * N * 2
    for arm, choice in chosen.items():
        tried = first.searched[""][arm].values()
        assert choice.values == max(tried, key=lambda v: quality(arm, v))
        assert max(choice.scores) == pytest.approx(100 * quality(arm, choice.values))
    for key in [key for key in done if int(key[0][-2:]) >= 6]:
        del done[key]  # stopped in the seventh round
    started.clear()
    known = stages_of(study()).tuning_sweeps()[""]  # of posfuse study status: runs nothing
    assert not started
    assert set(known.arms) == {f"{arm}.t{i:02}" for arm in chosen for i in range(7)}
    assert stages_of(study()).tune("", study()) == chosen
    rounds = started[: -2 * N * 2]  # the last command asks for all runs, which are done
    assert sorted(rounds) == sorted(f"{name}.{seed}" for name, seed in done if name[-2:] >= "06")
    later = stages_of(study()).tuning_sweeps()[""]  # of the table of runs
    assert later.values == first.tuning_sweeps()[""].values


def test_the_searches_of_the_repeats_are_done_once(sweeps, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    own = study()
    own.tuning.repeats = 2
    own.testing = Evaluation(seeds="0-3", looks=[2])
    monkeypatch.setattr(Stages, "check_arms", lambda self: {})
    tuned = stages_of(own)
    plan = tuned.freeze()
    monkeypatch.setattr(stages, "propose", None)  # is not called again
    known = tuned.tuning_sweeps()
    for part, sweep in known.items():
        tried = {values["optim.lr"] for values in sweep.values.values()}
        assert plan.choices[f"{part}.add"].values["optim.lr"] in tried
    assert known["r1"].values != known["r2"].values
