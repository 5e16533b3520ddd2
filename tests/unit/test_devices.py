"""The GPUs and the number of runs that share one machine."""

import os
import re
from functools import partial

import pytest

from hydra_plugins import posfuse_parallel
from hydra_plugins.posfuse_parallel import ParallelLauncher, prepare
from posfuse.config import TrainerConfig
from posfuse.process import devices, signals
from posfuse.process.devices import device_of
from posfuse.runs.checks import checked
from refusals import refusal
from small_runs import composed


def test_each_run_has_a_place():
    for gpus, runs_per_gpu, per_run, expected in (
        ("0 1", 1, 1, "0 1"),
        ("0 1", 3, 1, "0 1 0 1 0 1"),
        ("4 7", 1, 1, "4 7"),
        ("0 1 2 3", 1, 2, "0,1 2,3"),
        ("0 1 2 3 4", 2, 2, "0,1 2,3 0,1 2,3"),
    ):
        assert devices.places(gpus.split(), runs_per_gpu, per_run) == expected.split()
    line = refusal(devices.places, ["0", "1"], 1, 4)
    assert line.startswith("trainer.devices: must be at most 2, the number of GPUs (got 4); ")


@pytest.mark.parametrize(
    ("accelerator", "devices", "gpus", "expected"),
    [
        ("auto", 1, 2, "cuda"),
        ("auto", 2, 0, "cpu"),
        ("gpu", 2, 2, "cuda"),
        ("cpu", 4, 2, "cpu"),
        *((kind, 1, 0, f"trainer.accelerator: this machine has no {kind} that torch can ")
          for kind in ("gpu", "cuda")),
        *((kind, 3, 2, "trainer.devices: must be at most 2, the number of GPUs (got 3); ")
          for kind in ("auto", "gpu", "cuda")),
    ],
)  # fmt: skip
def test_a_run_gets_a_device_that_the_machine_has(
    accelerator, devices, gpus, expected, monkeypatch
):
    monkeypatch.setattr("torch.cuda.device_count", lambda: gpus)
    trainer = TrainerConfig(accelerator=accelerator, devices=devices)
    if expected in ("cuda", "cpu"):
        assert device_of(trainer) == expected
    else:
        line = refusal(device_of, trainer)
        assert line.startswith(expected)
        assert line.endswith(", or use trainer.accelerator=cpu")


def test_as_many_runs_train_at_once_as_asked_on_gpus_at_most_one_per_place(monkeypatch):
    monkeypatch.setattr(posfuse_parallel, "cores", lambda: 3)
    for places in ([], ["0", "1", "0", "1"]):
        monkeypatch.setattr(ParallelLauncher, "places", lambda *_, own=places: own)
        for n_jobs in (-1, 1, 4, 9):
            n = n_jobs if n_jobs > 0 else len(places) or 3
            assert ParallelLauncher(n_jobs).room([]) == (places[:n] or [""] * n)


def test_gpus_have_the_names_that_this_process_may_use(monkeypatch):
    for visible, expected in (
        (None, ["0", "1", "2"]), ("5, 2", ["5", "2"]), ("", ["0", "1", "2"]), ("-1", []),
        ("0,-1,1", ["0"]),
    ):  # fmt: skip
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        if visible is not None:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        monkeypatch.setattr("torch.cuda.device_count", partial(len, expected))
        assert devices.gpus() == expected


def test_a_value_of_the_launcher_that_starts_no_run_is_refused():
    for name, value in (
        ("n_jobs", None), ("n_jobs", True), ("n_jobs", "abc"), ("n_jobs", 0), ("n_jobs", -2),
        ("runs_per_gpu", -1),
    ):  # fmt: skip
        line = refusal(ParallelLauncher(**{name: value}).room, [])
        assert re.match(rf"hydra.launcher.{name}: must be 1 .*got {value!r}", line)


def test_a_worker_process_uses_its_gpus_only(monkeypatch):
    monkeypatch.setattr(signals, "exit_with_parent", lambda parent: None)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    for gpus, expected in (("", "0,1"), ("1", "1"), ("MIG-1/2", "MIG-1/2")):
        prepare(1, gpus)
        assert os.environ["CUDA_VISIBLE_DEVICES"] == expected


def test_on_a_mac_auto_is_the_cpu(monkeypatch):
    monkeypatch.setattr("sys.platform", "darwin")
    assert checked(composed()).trainer.accelerator == "cpu"
    monkeypatch.setattr("sys.platform", "linux")
    assert checked(composed()).trainer.accelerator == "auto"
