"""Weights & Biases offline: runs stay apart, hold each row once, and are finished in all cases."""

import json
import os
import shutil
import signal
import time
from pathlib import Path

import pandas as pd
import pytest
import wandb

from posfuse.errors import InputError, TrainingError
from posfuse.process import signals
from posfuse.process.signals import Interrupted
from posfuse.runs import records
from posfuse.runs.records import Diagnostic
from posfuse.tracking.callback import Tracker, fitting
from posfuse.tracking.gate_plot import gate_plot
from posfuse.tracking.logs import PLACES, drop_torn_end, keep_files_in, read, records_in, segments
from posfuse.tracking.upload import runs_in
from posfuse.train import train
from processes import children, command, ended, wait_for
from small_runs import at_step, small_config, write_corpus
from sweeps import results

STEPS, EPOCHS = 4, 3  # a run's, of 60 documents in batches of 16
ALL_ROWS = [4, 8, 12, 13]  # an epoch each, and one of charts


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("tracking") / "corpus")


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """An empty home, offline mode, and nothing set of what W&B's files go by."""
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("MPLCONFIGDIR", os.environ.get("MPLCONFIGDIR", str(tmp_path / "output")))
    monkeypatch.setenv("WANDB_MODE", "offline")
    variables = [*PLACES, *(f"XDG_{name}_HOME" for name in ("CACHE", "CONFIG", "DATA"))]
    for name in variables:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    yield tmp_path / "home"
    for name in PLACES:  # what the tracker sets for the process
        os.environ.pop(name, None)


def tracked(corpus, tmp_path, *overrides):
    output = f"output_dir={tmp_path / 'output'}"
    more = ("logger=wandb", f"trainer.max_epochs={EPOCHS}", output, "sweep_id=mine")
    return small_config(corpus, *more, *overrides)


def fail():
    raise RuntimeError("stop here")


def ends(log):
    """The exit codes that a log holds, and whether the run was marked as preempted."""
    found, _ = records_in(log)
    codes = [r.get("exit", {}).get("exit_code", 0) for r in found if r["type"] == "exit"]
    return codes, any(r["type"] == "preempting" for r in found)


def steps_in(folder):
    """The steps of the rows of each segment."""
    return [[row["_step"] for row in read(log).rows] for log in segments(folder)]


def test_two_runs_in_one_process_stay_apart_and_hold_everything(corpus, tmp_path, home):
    found = {}
    for fusion in ("add", "gate_scalar"):
        folder = tmp_path / "output" / "mine" / fusion
        record = train(tracked(corpus, tmp_path, f"fusion={fusion}", "seed=5"), folder)
        (log,) = segments(folder)
        found[fusion] = segment = read(log)
        assert segment.run_id.startswith(record["fingerprint"])
        assert ends(log) == ([0], False)

        labels = {key: segment.config[key] for key in ("data", "encoding", "fusion", "seed")}
        assert labels == {"data": "tiny", "encoding": "sinusoidal", "fusion": fusion, "seed": 5}
        assert segment.config["sweep_id"] == "mine"
        assert segment.config["model.d_model"] == 8
        assert not {"sweep", "group", "name"} & segment.config.keys()

        history = pd.read_csv(folder / records.HISTORY)
        assert [row["_step"] for row in segment.rows] == ALL_ROWS
        curves = [row for row in segment.rows if "val/accuracy" in row]
        for column in ("train_loss", "val_loss", "val_accuracy", "val_macro_f1"):
            logged = [row[column.replace("_", "/", 1)] for row in curves]
            assert logged == history[column].tolist()
        assert [row["trainer/global_step"] for row in segment.rows] == [4, 8, 12, 12]
        diagnostics = pd.read_parquet(folder / records.DIAGNOSTICS)
        last = diagnostics[(diagnostics["epoch"] == EPOCHS) & (diagnostics["name"] == "norm_ratio")]
        value = last.loc[(last["by"] == "position") & (last["low"] == 4), "value"].item()
        assert curves[-1]["diagnostics/norm_ratio_position_4"] == value
        shown = diagnostics["epoch"].eq(EPOCHS) & ~diagnostics["name"].str.startswith("accuracy")
        logged = [v for k, v in curves[-1].items() if k.startswith("diagnostics/")]
        assert sorted(logged) == sorted(diagnostics.loc[shown, "value"])

        for part in ("test", "position"):
            for name, value in record[part].items():
                assert segment.summary[f"{part}/{name}"] == value
        assert segment.summary["val/accuracy"] == record["validation"]["accuracy"]
        assert segment.summary["best_epoch"] == record["best_epoch"]

        (copy,) = segment.artifacts[f"result-{segment.run_id}"]
        assert copy.read_bytes() == (folder / records.RESULT).read_bytes()
        (matrix,) = log.parent.glob("files/media/table/confusion_matrix*.json")
        counts = json.loads(matrix.read_text())
        right = sum(n for actual, predicted, n in counts["data"] if actual == predicted)
        assert right == round(20 * record["test"]["accuracy"])
        images = list(log.parent.glob("files/media/images/gate_*.png"))
        assert len(images) == (fusion == "gate_scalar")
    assert found["add"].run_id != found["gate_scalar"].run_id
    assert wandb.run is None
    assert list(home.rglob("*")) == []
    assert {path.name for path in tmp_path.iterdir()} == {"home", "output"}
    assert (tmp_path / "output" / "mine" / ".wandb" / "artifacts").is_dir()


def test_the_same_run_of_two_sweeps_are_two(corpus, tmp_path):
    ids = set()
    for sweep in ("one", "other"):
        folder = tmp_path / sweep
        train(tracked(corpus, tmp_path, f"sweep_id={sweep}", "trainer.max_epochs=1"), folder)
        ids |= {read(log).run_id for log in segments(folder)}
    assert len(ids) == 2


def test_each_sweep_of_a_process_keeps_its_files_and_what_the_user_set_stays(tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_CACHE_DIR", "mine")
    for sweep in ("one", "other"):
        keep_files_in(tmp_path / sweep)
        assert os.environ["WANDB_DATA_DIR"] == str(tmp_path / sweep / ".wandb")
        assert os.environ["WANDB_CACHE_DIR"] == "mine"
    assert "WANDB_CONFIG_DIR" not in os.environ  # there is the server's address


def test_names_are_as_long_as_wandb_takes_them_and_texts_may_be_any(corpus, tmp_path):
    folder = tmp_path / "run"
    long, odd = "a tag that goes on " * 4, "a\x85b\u2028c"
    tags = f"logger.tags=['{long}','{odd}']"
    train(tracked(corpus, tmp_path, tags, "trainer.max_epochs=1"), folder)
    (log,) = segments(folder)
    assert not read(log).complaint
    (run,) = (record["run"] for record in records_in(log)[0] if record["type"] == "run")
    assert run["tags"][-2:] == [fitting(long, 64), odd]
    assert len(fitting(long, 64)) == 64
    assert fitting(long, 64) != fitting(long + "and on", 64)


def test_an_empty_mode_means_offline(corpus, tmp_path):
    """In a process of its own, since W&B reads its variables once."""
    argv = command(corpus, "logger=wandb", "trainer.max_epochs=1")
    done = ended(argv, tmp_path, {**os.environ, "WANDB_MODE": ""})
    assert done.returncode == 0, done.stderr
    (folder,) = results(tmp_path).values()
    assert segments(folder)


@pytest.mark.parametrize("mode", ["online", "elsewhere"])
def test_what_wandb_does_not_take_is_one_line_with_a_cure(mode, corpus, tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", mode)  # without a key
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    with pytest.raises(InputError, match=r"WANDB_MODE=offline .* logger=none") as refused:
        train(tracked(corpus, tmp_path), tmp_path / "run")
    assert "\n" not in str(refused.value)


def test_a_run_that_fails_is_finished_as_failed(corpus, tmp_path, monkeypatch):
    at_step(monkeypatch, 5, fail)
    with pytest.raises(RuntimeError, match="stop here"):
        train(tracked(corpus, tmp_path), tmp_path / "run")
    assert wandb.run is None
    (log,) = segments(tmp_path / "run")
    wait_for(lambda: ends(log) == ([1], False))  # W&B's own process writes it
    assert steps_in(tmp_path / "run") == [[4]]


def test_a_preempted_run_is_marked_so_and_goes_on(corpus, tmp_path, monkeypatch):
    folder = tmp_path / "run"
    with monkeypatch.context() as patched:
        at_step(patched, 5, lambda: os.kill(os.getpid(), signal.SIGTERM))
        with pytest.raises(Interrupted):
            train(tracked(corpus, tmp_path), folder)
    assert ends(segments(folder)[0]) == ([signals.EXIT_STATUS], True)
    train(tracked(corpus, tmp_path), folder)
    assert ends(segments(folder)[1]) == ([0], False)
    assert steps_in(folder) == [[4], ALL_ROWS[1:]]
    assert len({read(log).run_id for log in segments(folder)}) == 1


def end_core():
    """Kill W&B's own process, as the kernel does where memory has run out."""
    for pid in children(os.getpid()):
        if "wandb-core" in Path(f"/proc/{pid}/cmdline").read_text():
            os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("when", ["step", "init", "log_result"])
def test_without_its_process_wandb_fails_that_run_alone_and_it_goes_on(
    when, corpus, tmp_path, monkeypatch
):
    folder = tmp_path / "run"
    with monkeypatch.context() as patched:
        if when == "step":
            at_step(patched, 5, end_core)
        else:
            wandb.setup().ensure_service()
            place = (wandb, "init") if when == "init" else (Tracker, "log_result")
            original = getattr(*place)

            def ended(*arguments, **more):
                end_core()
                return original(*arguments, **more)

            patched.setattr(*place, ended)
        with pytest.raises(TrainingError, match="wandb-core, was killed"):
            train(tracked(corpus, tmp_path), folder)
    train(tracked(corpus, tmp_path, "seed=1"), tmp_path / "next")
    assert steps_in(tmp_path / "next") == [ALL_ROWS]
    train(tracked(corpus, tmp_path), folder)
    assert [step for steps in steps_in(folder) for step in steps] == ALL_ROWS


@pytest.mark.parametrize("when", ["wandb.init", "log_result"])
def test_a_signal_while_wandb_is_at_work_ends_a_run_that_goes_on(
    when, corpus, tmp_path, monkeypatch
):
    place = (wandb, "init") if when == "wandb.init" else (Tracker, "log_result")
    original = getattr(*place)

    def told(*arguments, **more):
        os.kill(os.getpid(), signal.SIGTERM)
        return original(*arguments, **more)

    folder = tmp_path / "run"
    with monkeypatch.context() as patched:
        patched.setattr(*place, told)
        with pytest.raises(Interrupted, match="interrupted by SIGTERM; saved at step"):
            train(tracked(corpus, tmp_path), folder)
    assert wandb.run is None
    assert not (folder / records.RESULT).exists()
    train(tracked(corpus, tmp_path), folder)
    assert [step for steps in steps_in(folder) for step in steps] == ALL_ROWS


def test_segments_are_in_the_order_of_their_steps_whatever_the_clock_says(
    corpus, tmp_path, monkeypatch
):
    folder, now = stopped_at(9, corpus, tmp_path, monkeypatch), time.time
    monkeypatch.setattr(time, "time", lambda: now() - 86400)
    train(tracked(corpus, tmp_path, "fusion=gate_scalar"), folder)
    assert steps_in(folder) == [ALL_ROWS[2:], [4, 8]]
    (run,) = runs_in(folder)
    assert [row["_step"] for part in run.segments for row in part.rows] == ALL_ROWS
    assert "test/accuracy" in run.summary


def stopped_at(step, corpus, tmp_path, monkeypatch):
    """The folder of a run that failed in a step."""
    folder = tmp_path / "run"
    with monkeypatch.context() as patched:
        at_step(patched, step, fail)
        with pytest.raises(RuntimeError, match="stop here"):
            train(tracked(corpus, tmp_path, "fusion=gate_scalar"), folder)
    return folder


def rows_of(folder):
    """What the rows hold beside times, by step."""
    own = ("_runtime", "_timestamp", "confusion", "gate.")
    rows = [row for log in segments(folder) for row in read(log).rows]
    return {row["_step"]: {k: v for k, v in row.items() if not k.startswith(own)} for row in rows}


def test_rows_repeated_since_the_checkpoint_are_dropped(corpus, tmp_path, monkeypatch):
    folder = stopped_at(9, corpus, tmp_path, monkeypatch)
    shutil.rmtree(folder / "checkpoints")  # so it starts from the first step again
    train(tracked(corpus, tmp_path, "fusion=gate_scalar"), folder)
    assert steps_in(folder) == [[4, 8], [12, 13]]


def test_rows_lost_in_a_kill_are_logged_after_it_and_the_whole_summary(
    corpus, tmp_path, monkeypatch
):
    folder = stopped_at(9, corpus, tmp_path, monkeypatch)
    (log,) = segments(folder)
    content = log.read_bytes()
    size = next(n for n in range(len(content), 0, -200) if len(rows_left(log, content[:n])) == 1)
    log.write_bytes(content[:size])
    train(tracked(corpus, tmp_path, "fusion=gate_scalar"), folder)
    assert steps_in(folder) == [[4], ALL_ROWS[1:]]

    whole = tmp_path / "whole"
    train(tracked(corpus, tmp_path, "fusion=gate_scalar"), whole)
    assert rows_of(folder) == rows_of(whole)
    last, once = (read(segments(f)[-1]).summary for f in (folder, whole))
    times = {"latency_ms", "_runtime", "_timestamp", "_wandb.runtime"}
    assert last.keys() == once.keys()
    changing = {k for k in once if last[k] != once[k]}
    assert {k for k in changing if not k.startswith("confusion_matrix_table.")} <= times


def test_a_run_killed_behind_its_charts_has_them_in_its_summary(corpus, tmp_path, monkeypatch):
    folder = tmp_path / "run"
    original = wandb.Artifact.new_file

    def refuse(self, name, *arguments, **more):
        return fail() if name == records.RESULT else original(self, name, *arguments, **more)

    with monkeypatch.context() as patched:
        patched.setattr(wandb.Artifact, "new_file", refuse)
        with pytest.raises(RuntimeError, match="stop here"):
            train(tracked(corpus, tmp_path, "fusion=gate_scalar"), folder)
    assert not (folder / records.RESULT).exists()
    train(tracked(corpus, tmp_path, "fusion=gate_scalar"), folder)
    assert steps_in(folder) == [ALL_ROWS, []]
    first, second = (read(log).summary for log in segments(folder))
    assert first.keys() - second.keys() == {"_step", "_timestamp"}  # of a row, and there is none
    assert {"gate.path", "confusion_matrix_table.path", "test/accuracy"} <= second.keys()


def rows_left(log, content):
    copy = log.with_name("copy.wandb")
    copy.write_bytes(content)
    rows = read(copy).rows
    copy.unlink()
    return rows


def test_a_torn_end_is_cut_off_and_nothing_else(corpus, tmp_path):
    folder = tmp_path / "run"
    train(tracked(corpus, tmp_path, "trainer.max_epochs=20"), folder)
    (log,) = segments(folder)
    content = log.read_bytes()
    assert len(content) > 2 * 32768  # blocks that records do not fit into
    drop_torn_end(log)
    assert log.read_bytes() == content
    for size in (7, 8, 20, 32768, 32770, 32775, 40000, 65536, len(content) - 1):
        log.write_bytes(content[:size])
        before, complaint = records_in(log)
        drop_torn_end(log)
        assert records_in(log) == (before, "")
        assert complaint or log.stat().st_size == size


def test_without_a_logger_nothing_of_wandb_is_written(corpus, tmp_path):
    folder = tmp_path / "run"
    train(small_config(corpus, "trainer.max_epochs=1"), folder)
    assert list(tmp_path.rglob("*wandb*")) == []
    assert (folder / records.RESULT).exists()


def test_only_gates_make_a_gate_plot():
    rows = [Diagnostic(1, "norm_ratio", "position", 0, 0, 5, 1.0)]
    assert gate_plot(rows, 1) is None
    for name, value in (("gate_mean", 0.75), ("gate_std", 0.1)):
        for by in ("position", "frequency"):
            rows += [Diagnostic(1, name, by, low, low, 5, value) for low in (0, 1, 2)]
    image = gate_plot(rows, 1)
    assert image.size == (800, 300)
    assert gate_plot(rows, 2) is None
