"""Sweeps in this process: what a failed run prints, the summary at the end, and lost runs."""

import json
import logging
import os
import re
import shlex
import sys
from functools import partial
from itertools import product
from pathlib import Path

import pytest
import torch
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.plugins import Plugins

from commands import called
from posfuse.data import corpora
from posfuse.runs import records
from posfuse.runs.checks import checked
from posfuse.runs.folders import run_folder
from posfuse.runs.identity import fingerprint, settings
from posfuse.runs.multirun import Multirun, has_result
from posfuse.sweeps import status
from posfuse.sweeps.launching import SweepLauncher, execute
from processes import assert_one_line
from small_runs import OWN_OPERATOR, SMALL, composed, small_overrides, write_corpus
from sweeps import kinds, results


@pytest.fixture
def small(corpus):
    """Call with overrides to get them and those of a run of one epoch."""
    return partial(small_overrides, corpus, "trainer.max_epochs=1", "trainer.progress=none")


def test_a_sweep_continues_after_a_failed_run_and_prints_how_to_retry_it(
    command, small, tmp_path, monkeypatch
):
    monkeypatch.setattr(status, "MINUTE", 0.05)
    folder = write_corpus(tmp_path / "a folder", n_classes=3)
    result = command("-m", *small(f"data.path='{folder}'", "data.limit=null,2", "seed=0,1"))
    root = tmp_path / "work" / "multirun" / "default"
    assert result.code == 1
    assert len(results(tmp_path / "work")) == 2
    reported, summary = result.err.partition("error: 2 of 4 runs failed; the others are done.")[::2]
    assert reported.count("failed: tiny/sinusoidal/add/") == 1
    for n in (1, 2):
        label = f"tiny sinusoidal add data.limit=null seed={n - 1}"
        assert f"run {n} of 4: {label}\n" in result.out
        assert f"\n{label}: test accuracy " in result.out
    assert re.search(r"^multirun/default: \d of 4 runs are done, ", result.out, re.M)
    assert "Traceback" not in result.out + result.err
    retries = [line.strip() for line in summary.splitlines() if "posfuse train" in line]
    assert len(retries) == 2
    reason = f"{folder / 'train.parquet'}: cannot take 2 of 60 documents with every class in "
    assert reported.count(reason) == summary.count(reason) == 1

    write_corpus(folder, n_classes=2)
    done = {path: path.stat().st_mtime_ns for path in root.rglob(records.RESULT)}
    again = command(*shlex.split(retries[0])[2:])
    assert again.code == 0, again.err
    assert len(results(tmp_path / "work")) == 3  # that run alone, in the sweep's folder
    assert all(path.stat().st_mtime_ns == time for path, time in done.items())
    assert kinds(root) == ["failed"]


def test_after_a_fix_the_same_sweep_repeats_only_the_failed_runs(command, small, tmp_path):
    sweep = ["-m", *small("seed=0,1,2")]
    assert command("-m", *small("seed=1")).code == 0
    (folder,) = results(tmp_path / "work").values()
    (folder / records.RESULT).write_text("{")
    first = command(*sweep)
    assert first.code == 1
    assert "error: 1 of 3 runs failed" in first.err
    assert "result.json: not a readable record (differs from its digest in SHA256SUMS)" in first.err
    assert first.out.count("test accuracy") == 2
    (folder / records.RESULT).unlink()
    second = command(*sweep)
    assert second.code == 0, second.err
    assert second.out.count("already done") == 2
    assert (folder / records.RESULT).exists()
    assert kinds(tmp_path) == []


def test_fail_fast_ends_a_sweep_at_its_first_failure(command, small, tmp_path):
    result = command("-m", *small("data.limit=2,null", "sweep.fail_fast=true"))
    assert result.code == 1
    first, second, *_ = result.err.splitlines()
    assert first.startswith("failed: tiny/sinusoidal/add/")
    assert "cannot take 2 of 60 documents" in first
    assert second.startswith("error: 1 of 2 runs failed; sweep.fail_fast stopped the others.")
    assert kinds(tmp_path) == ["failed", "interrupted"]
    assert not results(tmp_path / "work")


def test_code_that_exits_fails_its_own_run_alone(command, small, tmp_path, own_module):
    """With exit() in it the sweep would end with status 0."""
    own_module("exiting", "def operator(d_model): exit()")
    result = command("-m", *small("fusion._target_=exiting.operator,posfuse.model.fusion.Add"))
    assert result.code == 1
    assert "error: 1 of 2 runs failed; the others are done" in result.err
    assert "SystemExit" in result.err
    assert len(results(tmp_path / "work")) == 1


def test_a_sweep_asks_an_unreachable_hub_once(command, monkeypatch):
    """The library retries for 23 s. Afterwards the sweep reads the cache alone."""
    import datasets  # takes a second

    is_offline = []

    def load_dataset(*_, **__):
        is_offline.append(datasets.config.HF_HUB_OFFLINE)
        raise ConnectionError("no network")

    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", False)  # restored at the end
    monkeypatch.setattr(corpora, "_without_hub", [])
    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    result = command("-m", *SMALL, "trainer.progress=none", "data=agnews", "seed=0,1,2")
    assert "error: 3 of 3 runs failed." in result.err
    assert is_offline == [False, True, True]


def test_a_run_that_diverged_is_identified_in_its_failure(command, small, tmp_path):
    overrides = small("seed=1", "optim.lr=1e30")
    assert command("-m", *overrides).code == 1
    (path,) = tmp_path.rglob(records.FAILURE)
    cfg = checked(composed(*overrides))
    run = records.read_failure(path.parent)["run"]
    assert (run["fingerprint"], run["settings"]) == (fingerprint(cfg), settings(cfg))


def test_a_study_does_not_repeat_a_run_that_diverged(command, small, tmp_path, own_module):
    """A second try could finish and change a verdict. Another run, of other settings or code, and a
    run outside a study are repeated."""
    code = own_module("diverging_operator", OWN_OPERATOR)
    study, own = "+hydra.callbacks.ending.is_of_study=true", "fusion._target_={}.Mine"
    overrides = small("seed=1", "optim.lr=1e30", own.format("diverging_operator"))

    def failure_after(*more):
        command("-m", *overrides, *more)
        (path,) = tmp_path.rglob(records.FAILURE)
        return json.loads(path.read_text())

    first = failure_after()
    again = command("-m", *overrides, study)
    assert (again.code, again.err) == (0, "")
    assert "seed=1: diverged, so it is not run again" in again.out
    assert failure_after(study) == first
    path = next(tmp_path.rglob(records.FAILURE))
    path.write_text(json.dumps({k: v for k, v in first.items() if k != "run"}))
    assert failure_after(study)["id"] != first["id"]  # its run cannot be identified
    records.write_json(path, first | {"run": first["run"] | {"fingerprint": "another"}})
    second = failure_after(study)
    assert second["run"] == first["run"]
    code.write_text(f"{code.read_text()}    # changed\n")
    del sys.modules["diverging_operator"]  # as in another process
    third = failure_after(study)
    assert third["run"]["code"] != first["run"]["code"]
    assert failure_after()["id"] != third["id"]


def test_a_mistake_in_the_config_is_printed_once_for_all_runs(command, small, tmp_path):
    refused = command("-m", *small("seed=0,1", "model.n_heads=3"))
    assert_one_line(refused, "error: model.n_heads: ")
    assert kinds(tmp_path) == ["config", "config"]


class Losing(SweepLauncher):
    """Does the runs in this process, but loses the result of seed 1 as if its process had been
    killed at its end."""

    def results(self, calls):
        for call in calls:
            result = execute(*call)
            yield call, "the node is gone" if "seed=1" in call[1] else result


@pytest.fixture
def losing(monkeypatch):
    """The override that selects the launcher above: Hydra knows launchers by their names."""
    monkeypatch.setitem(Plugins.instance().class_name_to_class, "hydra_plugins.x.Losing", Losing)
    return "hydra.launcher._target_=hydra_plugins.x.Losing"


def test_a_lost_run_that_had_finished_has_not_failed(command, small, losing, tmp_path):
    result = command("-m", *small("seed=0,1"), losing)
    assert (result.code, result.err) == (0, "")
    assert len(results(tmp_path / "work")) == 2
    assert kinds(tmp_path) == []


def test_a_run_has_its_place_in_the_last_command_of_the_sweep(
    command, small, tmp_path, monkeypatch
):
    """Two commands share a folder, and the second one writes multirun.yaml while the first runs."""
    assert "\nrun 1 of 1: tiny " in f"\n{command('-m', *small()).out}"
    ((name, folder),) = results(tmp_path / "work").items()
    own = name.removeprefix("default/")
    other = str(Path(own).with_name("seed=7"))
    for folders, places in [([other, own], ["run 2 of 2"]), ([other], [])]:
        (folder / records.RESULT).unlink()
        monkeypatch.setattr("posfuse.runs.multirun.read_multirun", lambda _, f=folders: Multirun(f))
        assert re.findall(r"run \d of \d", command("-m", *small()).out) == places


def test_a_single_run_ends_with_its_folder_and_what_to_type_next(command, small, tmp_path):
    last = command(*small()).out.splitlines()[-1]
    (folder,) = results(tmp_path / "work").values()
    start = f"results: {folder}; next: other settings, for example in a sweep: posfuse train -m "
    own = shlex.split(last.partition(start)[2])
    kept = [override for override in small() if not override.startswith("fusion=")]
    assert own == [*kept, "fusion=add,concat", "seed=0,1,2", "sweep_id=mine"]
    place = f"hydra.searchpath=[file://{tmp_path}]"
    assert shlex.join([place]) in command(*small(), place).out.splitlines()[-1]
    last = command(*small("fusion=gate_mlp", "fusion.hidden=4", "seed=3")).out.splitlines()[-1]
    assert last.endswith(" trainer.progress=none fusion=add,gate_mlp seed=0,1,2 sweep_id=mine")
    assert "fusion.hidden" not in last.partition(" next: ")[2]
    without_a_file = ["~fusion", "+fusion={name: mine, _target_: posfuse.model.fusion.Add}"]
    last = command(*kept, *without_a_file).out.splitlines()[-1]
    assert last.endswith(" trainer.progress=none fusion=add,concat seed=0,1,2 sweep_id=mine")
    text = ["task=language_model", "data.vocabulary.unit=bytes", "data.max_len=8", "sweep_id=text"]
    last = command(*small(*text)).out.splitlines()[-1]
    advice = last.partition("posfuse sample ")[2].replace("TEXT", "the")
    shown, code = called("sample", *shlex.split(advice), "--tokens", "3")
    assert (shown[:3], code) == ("the", None)


def test_the_threads_of_a_run_are_not_those_of_the_next(command, small, tmp_path):
    """trainer.threads=null leaves their number to torch, as in a process of its own."""
    before = torch.get_num_threads()
    assert command("-m", *small(f"trainer.threads={before + 1},null")).code == 0
    runs = map(records.read_result, (tmp_path / "work").rglob(records.RESULT))
    assert sorted(run["host"]["threads"] for run in runs) == [before, before + 1]


def test_a_refused_command_keeps_what_the_sweep_has(command, small, tmp_path):
    sweep = tmp_path / "work" / "multirun" / "default"
    assert command("-m", *small()).code == 0
    before = (sweep / "multirun.yaml").read_bytes()
    assert_one_line(command("-m", *small("seed=a,b")), "error: seed: must be a whole number")
    assert (sweep / "multirun.yaml").read_bytes() == before
    refused = command("-m", *small("trainer.checkpoint_minutes=-1"))
    assert refused.err.startswith("error: trainer.checkpoint_minutes: must be above 0")
    (run,) = results(tmp_path / "work").values()
    assert (run / records.FAILURE).exists()
    assert command("-m", *small()).err == ""
    assert not (run / records.FAILURE).exists()


def test_a_result_is_not_used_if_the_sweep_asks_for_another_but_a_single_run_leaves_it(
    command, small, tmp_path
):
    texts = write_corpus(tmp_path / "other", n_classes=2)
    asked, other = ["-m", *small()], small(f"data.path={texts}")
    assert command(*asked).code == 0
    (run,) = results(tmp_path / "work").values()
    for mistake in (other, small(f"data.path={tmp_path / 'absent'}")):
        assert command(*mistake).code == 1
        assert not (run / records.FAILURE).exists()
    for command_of_the_sweep, is_used in ((["-m", *other], False), (other, False), (asked, True)):
        refused = command(*command_of_the_sweep).err
        assert ("has the result of other texts" in refused) != is_used
        assert has_result(run) == is_used
    assert command("-m", *other).code == 1
    (run / records.FAILURE).unlink()  # as the report says
    assert has_result(run)


def test_a_search_is_resumed_from_its_records(command, small, tmp_path):
    pytest.importorskip("optuna")
    search = ["-m", *small("fusion=add,concat", "optim.lr=interval(1e-3,1e-1)")]
    search.append("hydra/sweeper=optuna")
    first = command(*search, "hydra.sweeper.n_trials=1")
    assert first.code == 0, first.err
    (done,) = results(tmp_path / "work").values()
    (done / "train.log").unlink()
    again = command(*search, "hydra.sweeper.n_trials=2", "hydra.sweeper.max_batch_size=1")
    assert again.code == 0, again.err
    assert again.out.count("already done") == 1
    assert not (done / "train.log").exists()  # its job has not started again
    assert "\nrun 2 of 2: tiny " in again.out
    scores = {}
    for folder in results(tmp_path / "work").values():
        record = records.read_result(folder / records.RESULT)
        values = f"optim.lr={record['settings']['optim.lr']} fusion={record['fusion']}"
        scores[values] = record["validation"]["accuracy"]
    trials = re.findall(r"^trial \d of 2: (.*): validation accuracy (.*)$", again.out, re.M)
    assert {values: float(score) for values, score in trials} == pytest.approx(scores, abs=1e-4)
    best, place = re.search(r"^best trial: (\S+ \S+?),.*, in (.*)$", again.out, re.M).groups()
    assert scores[best] == max(scores.values())
    record = records.read_result(tmp_path / "work" / place / records.RESULT)
    assert record["validation"]["accuracy"] == scores[best]
    assert again.out.endswith("results: multirun/default; next: posfuse report multirun/default\n")
    sweep = tmp_path / "work" / "multirun" / "default"
    assert [run.state for run in status.runs_of(sweep)] == ["done"] * 2


def finish(sweep, *overrides):
    """Write what a command reads of a finished run."""
    cfg = checked(composed(*overrides))
    names = cfg.data.name, cfg.encoding.name, cfg.fusion["name"]
    folder = sweep / run_folder(*names, cfg.seed, overrides)
    folder.mkdir(parents=True)
    own = {"fingerprint": fingerprint(cfg), "settings": settings(cfg)}
    own |= {split: {"accuracy": 0.5} for split in ("validation", "test")}
    own["task"] = {"metric": "accuracy", "predictions": "classes"}
    records.write_json(folder / records.RESULT, {"schema": records.SCHEMA, **own})
    (folder / records.PREDICTIONS).touch()


def test_a_sweep_of_finished_runs_needs_no_reader_of_stdout(command, tmp_path, monkeypatch):
    given = ["logger=none", "sweep_id=done"]
    finish(tmp_path / "work" / "multirun" / "done", *given)
    reader, writer = os.pipe()
    os.close(reader)
    monkeypatch.setattr(logging, "raiseExceptions", True)
    with open(writer, "w", buffering=1) as closed:
        monkeypatch.setattr(sys, "stdout", closed)
        assert command("-m", *given).err == ""


@pytest.mark.slow
def test_hydra_composes_once_for_each_choice_of_files(command, tmp_path, monkeypatch):
    given = ["logger=none", "sweep_id=done", "data.limit=9"]
    for fusion, seed in product(("add", "concat"), range(4)):
        finish(tmp_path / "work" / "multirun" / "done", *given, f"fusion={fusion}", f"seed={seed}")
    compose, composed_by_hydra = ConfigLoaderImpl._load_configuration_impl, []

    def counted(*arguments, **options):
        composed_by_hydra.append(options["overrides"])
        return compose(*arguments, **options)

    monkeypatch.setattr(ConfigLoaderImpl, "_load_configuration_impl", counted)
    sweep = ["-m", *given, "fusion=add,concat", "seed=range(4)"]
    skipped = command(*sweep)
    assert (skipped.code, skipped.err) == (0, "")
    line = "bbc_lead_paragraph sinusoidal concat seed=3: already done, test accuracy 0.5000\n"
    assert skipped.out.count(": already done, ") == 8
    assert line in skipped.out
    assert len(composed_by_hydra) == 2 + 2  # the sweep itself twice
    assert not list(tmp_path.rglob("train.log"))  # no job has started

    by_jobs = command(*sweep, "logger.notes=${hydra:job.name}")  # is known in a job alone
    assert by_jobs.err == ""
    assert by_jobs.out.count(": already done, ") == len(list(tmp_path.rglob("train.log"))) == 8

    composed_by_hydra.clear()
    refused = command(*sweep, "model.n_heads=3")
    assert len(kinds(tmp_path)) == 8
    assert refused.err.startswith("error: model.n_heads: ")
    assert len(composed_by_hydra) == 2 + 2
