"""A run in W&B while it trains: its rows, its end, and what happens where W&B fails."""

import os
import platform
import shutil
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest
import wandb
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode

from fake_wandb import ENTITY
from posfuse.process import signals
from posfuse.process.commit import commit
from posfuse.runs import identity, records
from posfuse.runs.configs import CONFIG
from posfuse.tracking import projection, server
from posfuse.tracking.live import LIMIT, Live, is_of_agent, start_run, track
from posfuse.tracking.projection import STEP, Cell
from posfuse.tracking.server import text_of
from posfuse.train import train
from refusals import refusal
from small_runs import REFERENCE, small_config
from uploads import restarted

pytestmark = pytest.mark.usefixtures("running")
PAGE = Path(__file__).parents[2] / "docs" / "wandb.md"
CELL = Cell("tiny", "sinusoidal", "", "accuracy")
END = [("preempting",), ("finish", signals.EXIT_STATUS)]


class Run:
    """What W&B's run is asked for. While it is broken it logs nothing."""

    offline = True

    def __init__(self, starting_step=0):
        self.starting_step, self.id = starting_step, "f"
        self.steps, self.rows, self.ended, self.broken = [], [], [], False
        self.config, self.summary, self.artifacts = {}, {}, []

    def log(self, row, step, commit):
        if self.broken:
            raise RuntimeError("the socket\nis closed")
        assert commit
        self.steps.append(step)
        self.rows.append(row)

    def mark_preempting(self):
        self.ended.append(("preempting",))

    def finish(self, exit_code):
        self.ended.append(("finish", exit_code))

    def log_artifact(self, artifact):
        self.artifacts.append(artifact.name)


def rows(*steps):
    return [{"epoch": i, "step": step, "val_loss": 0.5} for i, step in enumerate(steps, 1)]


@pytest.fixture
def run(monkeypatch):
    """W&B starts no other run than this one."""
    run = Run()
    monkeypatch.setattr(server, "start", lambda *_, **__: run)
    return run


@pytest.fixture
def cfg(corpus, tmp_path):
    return small_config(corpus, *REFERENCE, "logger=wandb", f"output_dir={tmp_path / 'output'}")


def test_steps_within_an_epoch_are_logged_at_once_and_an_evaluation_once():
    run, steps = Run(), [{"step": n, "train_loss": 0.7, "lr": 0.01} for n in (2, 4, 6)]
    live = Live(run, CELL)
    live.log_rows([], [], steps[:1])
    assert run.steps == [2]
    live.log_rows(rows(4), [], steps[:2])
    live.log_rows(rows(4), [], steps)
    assert run.steps == [2, 4, 6]
    assert run.rows[1] == {STEP: 4, "epoch": 1, "val/loss": 0.5, "step/loss": 0.7, "step/lr": 0.01}
    assert run.rows[2] == {STEP: 6, "step/loss": 0.7, "step/lr": 0.01}


def test_a_finished_run_is_completed(run, cfg, reference):
    folder, record = reference
    run.starting_step = 9
    with track(cfg, folder):
        pass
    assert run.steps == [12, 16, 17]
    assert run.summary["test/accuracy"] == record["test"]["accuracy"]
    assert run.artifacts == ["result-f"]
    assert run.ended == [("finish", 0)]


def test_a_run_is_completed_although_its_config_cannot_be_read_again(run, cfg, reference, tmp_path):
    folder = shutil.copytree(reference[0], tmp_path / "copy")
    (folder / CONFIG).write_text("logger: {notes: '${x}'}")
    with track(cfg, folder):
        pass
    assert run.artifacts == ["result-f"]
    assert run.ended == [("finish", 0)]


@pytest.mark.parametrize(
    ("error", "end"),
    [(KeyboardInterrupt, END), (signals.Interrupted, END), (RuntimeError, [("finish", 1)])],
)
def test_an_interrupted_run_is_marked_and_has_the_status_75(error, end, run, cfg, tmp_path):
    with pytest.raises(error), track(cfg, tmp_path):
        raise error
    assert run.ended == end


@pytest.mark.parametrize("mode", ["online", "offline"])
def test_a_run_on_a_server_shows_its_address_without_a_token(
    mode, running, cfg, tmp_path, monkeypatch, caplog
):
    caplog.set_level("INFO")
    monkeypatch.setenv("WANDB_MODE", mode)
    with restarted(), pytest.raises(RuntimeError), track(cfg, tmp_path):
        raise RuntimeError
    lines = [line for line in caplog.messages if line.startswith("W&B: ")]
    name = projection.run_id(records.identity(cfg, tmp_path))
    assert lines == [f"W&B: {running.url}/{ENTITY}/posfuse/runs/{name}"] * (mode == "online")


def test_a_server_that_stops_answering_does_not_hold_up_the_next_run(
    running, cfg, reference, tmp_path, monkeypatch, caplog
):
    folder = shutil.copytree(reference[0], tmp_path / "copy")
    monkeypatch.setenv("WANDB_MODE", "online")
    monkeypatch.setitem(LIMIT, "finish_timeout", 1.0)
    with restarted(), ExitStack() as afterwards, track(cfg, folder):
        afterwards.callback(running.lock.release)
        running.lock.acquire()
    (line,) = [line for line in caplog.messages if line.startswith("W&B failed (")]
    assert line.endswith("the run continues without it; upload it later with posfuse sync")


def test_where_wandb_fails_it_is_given_up_with_one_warning(monkeypatch, caplog):
    ended = []
    monkeypatch.setattr(server, "end_process", lambda: ended.append(True))
    run = Run()
    live = Live(run, CELL)
    live.log_rows(rows(4), [], [])
    run.broken = True
    live.log_rows(rows(4, 8), [], [])
    run.broken = False
    live.log_rows(rows(4, 8, 12), [], [])
    assert (run.steps, ended) == ([4], [True])
    (line,) = caplog.messages
    assert line.startswith("W&B failed (the socket")
    assert line.endswith("upload it later with posfuse sync")
    assert "\n" not in line


@pytest.mark.parametrize("mode", ["", "dryrun"])  # as if unset; W&B's old name of offline
def test_an_offline_run_replaces_the_earlier_log_when_it_has_started(
    mode, run, cfg, tmp_path, monkeypatch
):
    monkeypatch.setenv("WANDB_MODE", mode)
    logs, facts = tmp_path / "wandb", records.identity(cfg, tmp_path)
    for name in ("offline-run-1-x", "run-2-x"):
        (logs / name).mkdir(parents=True)
    with monkeypatch.context() as refusing:
        refusing.setattr(server, "start", MagicMock(side_effect=ValueError("a wrong setting")))
        assert refusal(start_run, cfg, tmp_path, facts).startswith("W&B: a wrong setting; ")
    assert len(os.listdir(logs)) == 2
    assert start_run(cfg, tmp_path, facts) is run
    assert os.environ["WANDB_MODE"] == (mode or "offline")
    assert [log.name for log in logs.iterdir()] == ["run-2-x"]  # that one was online


@pytest.mark.parametrize(
    ("mode", "reason"),
    [("online", "W&B: No API key"), ("elsewhere", "WANDB_MODE: Input should be 'online', 'off")],
)
def test_what_wandb_refuses_is_one_line(mode, reason, cfg, tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", mode)
    monkeypatch.setenv("WANDB_API_KEY", "")
    with restarted():
        error = refusal(train, cfg, tmp_path / "run")
    assert error.startswith(reason)
    assert (f"    {error}\n" in PAGE.read_text()) == (mode == "online")
    assert "logger.mode=off" in error
    assert ".;" not in error
    assert "pydantic" not in error


def test_the_text_of_an_error_is_one_line_without_a_token():
    with pytest.raises(ValueError) as refused:
        wandb.Settings(fork_from="a?_step=1", resume="must")
    line = text_of(refused.value)
    assert line.startswith("Value error, `fork_from`, `resume`, or")
    assert line.endswith("specify only one of them")
    line = text_of(ValueError('Post "http://SECRET@127.0.0.1:1/graphql":\na@b refused'))
    assert line == 'Post "http://127.0.0.1:1/graphql": a@b refused'


def test_variables_of_an_agent_give_no_run_another_id(cfg, tmp_path, monkeypatch, caplog):
    """`wandb agent` sets them, and W&B then ignores the id that it gets."""
    wandb.teardown()  # W&B reads its variables once
    given = {"WANDB_RUN_ID": "abc", "WANDB_SWEEP_ID": "abc", "WANDB_RESUME": "must"}
    for name, value in {**given, "TRAINING_JOB_NAME": "of_sagemaker"}.items():
        monkeypatch.setenv(name, value)
    for seed in (0, 1):
        cfg.seed = seed
        folder = tmp_path / "sinusoidal" / "gate_scalar" / f"seed={seed}"
        run = start_run(cfg, folder, records.identity(cfg, folder))
        run.finish()
        assert run.id.startswith(identity.fingerprint(cfg))
        assert run.sweep_id is None
    (warning,) = [found for found in caplog.records if found.name == server.__name__]
    start = "WANDB_RUN_ID, WANDB_SWEEP_ID, WANDB_RESUME: ignored; a run's id in "
    assert warning.getMessage().startswith(start)


def test_a_run_of_an_agent_has_the_agents_id(cfg, tmp_path, monkeypatch):
    """`wandb agent` starts posfuse train without -m, once for each run."""
    wandb.teardown()
    monkeypatch.setenv("WANDB_RUN_ID", "abc")
    monkeypatch.setenv("WANDB_SWEEP_ID", "of_sweep")
    monkeypatch.setenv("WANDB_MODE", "offline")  # an agent's runs are online otherwise
    hydra = SimpleNamespace(mode=RunMode.RUN)
    monkeypatch.setattr(HydraConfig, "initialized", lambda: True)
    monkeypatch.setattr(HydraConfig, "get", lambda: hydra)
    run = start_run(cfg, tmp_path, records.identity(cfg, tmp_path))
    run.finish()
    assert (run.id, run.sweep_id) == ("abc", "of_sweep")
    hydra.mode = RunMode.MULTIRUN
    assert not is_of_agent()


def test_keys_of_the_logger_reach_wandb_and_of_a_run_that_fails_its_origin(
    cfg, tmp_path, monkeypatch
):
    given = {}
    monkeypatch.setattr(wandb, "init", lambda **values: given.update(values) or MagicMock())
    monkeypatch.setenv("WANDB_MODE", "offline")
    keys = {"mode": "online", "entity": "team", "notes": "a note", "job_type": "tune"}
    cfg.logger = replace(cfg.logger, **keys)
    with pytest.raises(RuntimeError), track(cfg, tmp_path):
        raise RuntimeError
    assert {key: given[key] for key in keys} == keys
    assert given["group"].startswith("default/tiny/sinusoidal/gate_scalar")
    origin = {key: given["config"][key] for key in ("commit", "host")}
    assert origin == {"commit": commit(), "host": platform.node()}
    assert given["config"]["started"] <= records.now()
    fingerprint = identity.fingerprint(cfg)
    for shell, project, used in (("", None, "posfuse"), ("s", None, "s"), ("s", "own", "own")):
        monkeypatch.setenv("WANDB_PROJECT", shell)
        cfg.logger.project = project
        start_run(cfg, tmp_path, records.identity(cfg, tmp_path))
        assert given["project"] == used
        assert identity.fingerprint(cfg) == fingerprint
