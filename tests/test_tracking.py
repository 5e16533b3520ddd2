"""Weights & Biases offline: runs stay apart, carry their config, and are finished in all cases."""

from collections import defaultdict

import pytest
import wandb

from posfuse import records
from posfuse.classifier import Classifier
from posfuse.train import train
from small_runs import small_config, write_corpus


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("tracking") / "corpus")


@pytest.fixture
def started(tmp_path, monkeypatch):
    """An empty home, offline mode, and the list of the W&B runs that are started."""
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("WANDB_MODE", "offline")
    for name in ("CACHE", "CONFIG", "DATA"):
        monkeypatch.delenv(f"WANDB_{name}_DIR", raising=False)
        monkeypatch.delenv(f"XDG_{name}_HOME", raising=False)
    monkeypatch.chdir(tmp_path)
    runs = []
    start = wandb.init

    def init(**arguments):
        runs.append(start(**arguments))
        return runs[-1]

    monkeypatch.setattr(wandb, "init", init)
    yield runs
    for name in ("CACHE", "CONFIG", "DATA"):  # what tracker sets for the process
        monkeypatch.delenv(f"WANDB_{name}_DIR", raising=False)


@pytest.fixture
def sent(monkeypatch):
    """The last value of each metric that was sent to each W&B run, by the run's id."""
    values = defaultdict(dict)
    log = wandb.Run.log

    def keep(self, data, *arguments, **more):
        values[self.id].update(data)
        return log(self, data, *arguments, **more)

    monkeypatch.setattr(wandb.Run, "log", keep)
    return values


def tracked(corpus, tmp_path, *overrides):
    output = f"output_dir={tmp_path / 'output'}"
    return small_config(corpus, "logger=wandb", "trainer.max_epochs=2", output, *overrides)


def offline_files(folder):
    return list(folder.glob("wandb/offline-run-*/*.wandb"))


def test_two_runs_in_one_process_stay_apart_and_carry_their_config(corpus, tmp_path, started, sent):
    results = []
    for fusion in ("add", "concat"):
        folder = tmp_path / "output" / fusion
        results.append(
            train(tracked(corpus, tmp_path, f"fusion={fusion}", "seed=5"), folder)["test"]
        )
    for fusion, result, run in zip(("add", "concat"), results, started, strict=True):
        assert len(offline_files(tmp_path / "output" / fusion)) == 1
        assert run.dir.startswith(str(tmp_path / "output" / fusion))
        assert {f"test/{name}": value for name, value in result.items()}.items() <= sent[
            run.id
        ].items()
        assert {"train/loss", "val/loss", "val/accuracy"} <= set(sent[run.id])
        assert {"diagnostics/norm_ratio_position_4", "position/shuffled"} <= set(sent[run.id])
        config = dict(run.config)
        labels = {key: config[key] for key in ("data", "encoding", "fusion", "seed")}
        assert labels == {"data": "tiny", "encoding": "sinusoidal", "fusion": fusion, "seed": 5}
        assert config["model.d_model"] == 8
        assert not any(isinstance(value, dict) for value in config.values())
    assert wandb.run is None
    assert started[0].id != started[1].id
    assert list((tmp_path / "home").rglob("*")) == []
    assert {path.name for path in tmp_path.iterdir()} == {"home", "output"}


def test_a_run_is_finished_even_if_training_raises(corpus, tmp_path, started, monkeypatch):
    def fail(*_):
        raise RuntimeError("stop here")

    monkeypatch.setattr(Classifier, "training_step", fail)
    with pytest.raises(RuntimeError, match="stop here"):
        train(tracked(corpus, tmp_path), tmp_path / "run")
    assert wandb.run is None
    assert len(started) == 1
    assert len(offline_files(tmp_path / "run")) == 1


def test_without_a_logger_nothing_of_wandb_is_written(corpus, tmp_path, started):
    folder = tmp_path / "run"
    train(small_config(corpus, "trainer.max_epochs=1"), folder)
    assert started == []
    assert list(tmp_path.rglob("*wandb*")) == []
    assert (folder / records.RESULT).exists()
