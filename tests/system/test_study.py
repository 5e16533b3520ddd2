"""A study as a command: killed twice on the way it gives the same verdicts, from the same runs."""

import os
import shutil
import signal
import sys

import pandas as pd
import pytest
import yaml

from finding_tables import read_runs
from posfuse.runs import records
from posfuse.runs.folders import results_in
from posfuse.study.looks import progress
from posfuse.study.reading import read_study
from processes import alive, descendants, ended, started, wait_for
from small_runs import small_overrides, write_corpus
from study_runs import GOOD, write_study

GIVEN = ("cache_dir", "logger", "trainer.progress", "data.path")  # on the command line


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """GOOD on a small corpus: four arms, three trials, two finalists, looks at 2 and 4 seeds."""
    root = tmp_path_factory.mktemp("study")
    given = dict(o.split("=", 1) for o in small_overrides(write_corpus(root / "corpus")))
    settings = {k: yaml.safe_load(v) for k, v in given.items() if k not in GIVEN}
    settings |= {"trainer.max_epochs": 2, "optim.lr": 0.01}
    write_study(
        root / "mine.yaml",
        GOOD,
        base=None,
        settings=settings,
        tuning__grid={"model.token_scale": [1, 4, 8]},
        tuning__finalists=2,
        tuning__final_seeds=[101],
        testing={"seeds": "0-3", "looks": [2, 4]},
        hypotheses__1__expects="equivalent",
        hypotheses__1__margin=60,
    )
    return root / "mine.yaml"


def posfuse_study(command, study, *more):
    root = study.parent
    extra = [f"cache_dir={root / 'cache'}", "logger=none", "trainer.progress=none"]
    extra.append(f"data.path={root / 'corpus'}")
    return [sys.executable, "-m", "posfuse", "study", command, str(study), *extra, *more]


def printed(command, study, folder, *more):
    """What a command prints that succeeds."""
    done = ended(posfuse_study(command, study, *more), folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


def plan_in(folder):
    return yaml.safe_load((folder / "multirun/mine/plan.yaml").read_text())


@pytest.fixture(scope="module")
def undisturbed(study):
    """The study in a folder of its own: first its plan, then the rest."""
    folder = study.parent / "undisturbed"
    frozen = printed("freeze", study, folder)
    digest = plan_in(folder)["digest"]
    assert f"plan {digest}\nnext: posfuse study run " in frozen
    assert not (folder / "multirun/mine_test").exists()
    done = printed("run", study, folder)
    assert plan_in(folder)["digest"] == digest
    return folder, done


def test_a_study_ends_with_a_report_that_names_its_plan(undisturbed):
    folder, shown = undisturbed
    plan = plan_in(folder)
    page = (folder / "multirun/mine/report/index.html").read_text()
    assert plan["digest"] in page
    assert f"Plan {plan['digest'][:16]}, frozen at 2" in shown
    assert "results: multirun/mine/report/index.html; next: open it in a browser" in shown
    assert page.index(f"Plan {plan['digest'][:16]}, frozen at 2") < page.index("Hypotheses")
    assert len(list((folder / "multirun/mine_tune").rglob(records.RESULT))) == 20
    tested = list((folder / "multirun/mine_test").rglob(records.RESULT))
    assert len(tested) in range(8, 17)


def test_its_table_of_runs_gives_the_same_verdicts(study, undisturbed):
    folder, _ = undisturbed
    runs = folder / "multirun/mine/report/runs.csv"
    frame = pd.read_csv(runs)
    assert (frame["stage"] == "tuning").sum() == 20
    tested, plan = frame[frame["stage"] == "testing"], plan_in(folder)
    assert set(tested["plan"]) == {plan["digest"]}
    assert (tested["started"] >= plan["frozen"]).all()
    has_table = ~frame["arm"].str.contains("none")
    assert frame["norm_ratio"].between(0.01, 1000).sum() == has_table.sum()
    own = read_study(str(study))[1]
    state = progress(own, read_runs(runs, own).query("stage == 'testing'"))
    shown = pd.read_csv(folder / "multirun/mine/report/tables/hypotheses.csv")
    assert [v.verdict for v in state.verdicts] == list(shown["verdict"])
    assert [v.decision.mean for v in state.verdicts] == pytest.approx(list(shown["mean"]))


def test_killed_twice_it_gives_the_same_verdicts(study, undisturbed):
    folder = study.parent / "killed"

    def finished(sweep):
        return len(results_in(folder / "multirun" / sweep))

    for sweep, number in (("mine_tune", signal.SIGKILL), ("mine_test", signal.SIGTERM)):
        process = started(posfuse_study("run", study), folder)
        wait_for(lambda run=process, sweep=sweep: finished(sweep) or run.poll() is not None)
        below = descendants(process.pid)
        os.kill(process.pid, number)
        process.communicate()
        wait_for(lambda below=below: not alive(below))
        assert process.returncode == (75 if number == signal.SIGTERM else -number)
    kept = {p: p.stat().st_mtime_ns for p in (folder / "multirun").rglob(records.RESULT)}
    assert 20 <= len(kept) < 36
    other_name = f"data.path={study.parent}/../{study.parent.name}/corpus"
    command = [w for w in posfuse_study("run", study) if not w.startswith("data.path=")]
    done = ended([*command, other_name], folder)
    assert done.returncode == 0, done.stderr
    assert all(p.stat().st_mtime_ns == time for p, time in kept.items())
    for name in ("report/tables/hypotheses.csv", "report/tables/arms.csv"):
        one, other = (f / "multirun/mine" / name for f in (folder, undisturbed[0]))
        assert one.read_bytes() == other.read_bytes(), name
    plans = [plan_in(f) for f in (folder, undisturbed[0])]
    for plan in plans:
        del plan["digest"], plan["frozen"]
    assert plans[0] == plans[1]


def test_its_state_and_its_forecast_are_shown(study, undisturbed):
    folder, _ = undisturbed
    assert "plan: frozen in multirun/mine/plan.yaml\n" in printed("status", study, folder)
    tuned = study.parent / "tuned"  # as before the plan was frozen
    shutil.copytree(folder / "multirun/mine_tune", tuned / "multirun/mine_tune")
    shown = printed("status", study, tuned)
    assert "tuning: 12 of 12 runs are done" in shown
    assert "tuning: 8 of 8 runs of the finalists are done" in shown
    assert f"run it with posfuse study run {study} data.path={study.parent}/corpus" in shown
    forecast = printed("plan", study, study.parent / "planned", "--no-timing")
    runs = "tuning: 4 arms x (3 trials x 1 seeds + 2 finalists x 1 seeds) = 20 runs\n"
    assert runs in forecast
    assert not (study.parent / "planned" / "multirun").exists()


def test_texts_changed_after_test_seeds_ran_are_one_line(study, undisturbed):
    folder, _ = undisturbed
    corpus = study.parent / "corpus" / "test.parquet"
    before = corpus.read_bytes()
    pd.read_parquet(corpus).iloc[1:].to_parquet(corpus)
    try:
        done = ended(posfuse_study("run", study), folder)
    finally:
        corpus.write_bytes(before)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "the config of add, concat, add_none, concat_none was changed after" in done.stderr


def test_repeated_tuning_is_judged_by_the_means_of_repeats(study):
    path, folder = study.parent / "repeated.yaml", study.parent / "repeats"
    grid = {"model.token_scale": [1, 4]}
    write_study(
        path,
        yaml.safe_load(study.read_text()),
        arms={arm: {"fusion": arm} for arm in ("add", "concat")},
        tuning={"grid": grid, "seeds": "100-101", "repeats": 2, "null_arm": "add"},
        testing={"seeds": "0-3", "looks": [2]},
        hypotheses=GOOD["hypotheses"][:1],
        assumed__between=1,
    )
    assert "of means over each repeat's seeds." in printed("run", path, folder)
    report = folder / "multirun/repeated/report"
    frame = pd.read_csv(report / "runs.csv")
    assert frame.groupby("stage").size().to_dict() == {"testing": 12, "tuning": 12}
    tested = frame[frame["stage"] == "testing"]
    means = tested.groupby(["arm", tested["repeat"].str[:2]])["test_accuracy"].mean().unstack("arm")
    shown = pd.read_csv(report / "tables/hypotheses.csv").set_index("hypothesis")
    assert shown.loc["gain", "mean"] == pytest.approx((means["concat"] - means["add"]).mean())
    null = (means["null_arm"] - means["add"]).mean()
    assert shown.loc["null_arm", "mean"] == pytest.approx(null)
    assert "Noise of tuning" in (report / "index.html").read_text()
    again = printed("status", path, folder)
    assert "testing: 1 of 1 looks of the control hypotheses are made" in again
