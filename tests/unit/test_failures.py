"""Failures of runs: their messages and records, what a sweep prints, and how it ends."""

import errno
import importlib
import pickle
import signal
import sys

import pytest
import torch
from omegaconf import OmegaConf
from omegaconf.errors import ConfigAttributeError

from posfuse.errors import NO_MEMORY, ConfigError, Diverged, lacks_memory, reason
from posfuse.process import signals
from posfuse.runs import hydra_errors, records
from posfuse.runs.checks import checked
from posfuse.runs.multirun import write_multirun
from posfuse.sweeps.failures import FAIL_FAST, Ending, message_of, record_failure, report, retry
from refusals import refusal
from small_runs import composed

OLD, RUN, OTHER = (f"data/encoding/fusion/seed={seed}" for seed in range(3))


def test_the_first_signal_after_fail_fast_lets_runs_save(monkeypatch):
    monkeypatch.setattr(signals, "_received", {})
    monkeypatch.setattr(signals.os, "_exit", sys.exit)
    signals.request(FAIL_FAST)
    signals._handle(signal.SIGINT, None)
    assert [*signals._received] == [FAIL_FAST, "SIGINT"]
    with pytest.raises(SystemExit):
        signals._handle(signal.SIGINT, None)


@pytest.fixture
def sweep(tmp_path):
    """The config of a sweep in `tmp_path`, and its callback, which has seen its start."""
    parts = {name: {"name": name} for name in ("data", "encoding", "fusion")}
    overrides = {"task": ["seed=range(3)"], "hydra": []}
    hydra = {"sweep": {"dir": str(tmp_path)}, "sweeper": {}, "overrides": overrides}
    config = OmegaConf.create({"hydra": hydra, "seed": 0, **parts})
    for name in (OLD, RUN, OTHER):
        (tmp_path / name).mkdir(parents=True)
    record_failure("an earlier sweep's", tmp_path / OLD, [], "failed")
    ending = Ending(str(tmp_path))
    ending.on_multirun_start(config)
    return config, ending


def test_a_sweep_ends_as_its_new_failures_say(sweep, tmp_path):
    config, ending = sweep
    ending.on_multirun_end(config)
    record_failure("by a signal", tmp_path / RUN, [], records.INTERRUPTED)
    with pytest.raises(signals.Interrupted, match=r"^1 of 3 runs were interrupted$"):
        ending.on_multirun_end(config)
    record_failure("wrong", tmp_path / OTHER, [], "config")
    with pytest.raises(SystemExit, match=r"^1$"):
        ending.on_multirun_end(config)
    record_failure("broken", tmp_path / OLD, ["seed=1", "a=b c"], "failed")
    with pytest.raises(SystemExit) as end:
        ending.on_multirun_end(config)
    assert end.value.code.splitlines() == [
        "error: 1 of 3 runs failed, 1 refused, 1 interrupted. Run the same "
        "command again, or retry each with:",
        "  posfuse train seed=1 'a=b c'",
        "    broken",
    ]


def test_runs_that_fail_for_one_reason_are_listed_together(sweep, tmp_path, capsys):
    config, ending = sweep
    reasons = {OLD: "no file"} | dict.fromkeys((RUN, OTHER), "KeyError; see {}/train.log")
    for run, text in reasons.items():
        record_failure(text.format(tmp_path / run), tmp_path / run, [run[-6:]], "failed")
        report(tmp_path / run, tmp_path, fail_fast=False)
    first = f"KeyError; see {tmp_path / RUN}/train.log"
    printed = [f"failed: {OLD}: no file", f"failed: {RUN}: {first}"]
    assert capsys.readouterr().err.splitlines() == printed
    with pytest.raises(SystemExit) as end:
        ending.on_multirun_end(config)
    assert end.value.code.splitlines()[1:] == [
        "  posfuse train seed=0", "    no file",
        "  posfuse train seed=1", "  posfuse train seed=2", f"    {first}",
    ]  # fmt: skip
    Ending(str(tmp_path)).on_multirun_start(config)  # the next sweep prints its failures again
    report(tmp_path / OLD, tmp_path, fail_fast=False)
    assert capsys.readouterr().err.splitlines() == printed[:1]


def test_a_study_counts_runs_that_diverged_and_lists_neither_them_nor_a_next_step(
    sweep, tmp_path, capsys
):
    config, ending = sweep
    record_failure("the loss is not finite", tmp_path / RUN, ["seed=1"], Diverged.kind)
    with pytest.raises(SystemExit, match="posfuse train seed=1"):
        ending.on_multirun_end(config)
    of_study = Ending(str(tmp_path), is_of_study=True)
    of_study.before = ending.before
    of_study.on_multirun_end(config)
    assert "next: " not in capsys.readouterr().out
    record_failure("broken", tmp_path / OTHER, ["seed=2"], "failed")
    with pytest.raises(SystemExit, match="1 of 3 runs failed") as end:
        of_study.on_multirun_end(config)
    assert "seed=1" not in end.value.code
    OmegaConf.update(config, FAIL_FAST, True)  # it has ended the sweep
    with pytest.raises(SystemExit, match="posfuse train seed=1"):
        of_study.on_multirun_end(config)


def test_a_sweep_does_not_report_the_failures_of_another_command_in_its_folder(
    sweep, tmp_path, capsys
):
    config, ending = sweep
    other = config.copy()
    other.hydra.overrides.task = ["seed=3"]
    write_multirun(other)
    for seed, kind in ((3, "failed"), (4, records.INTERRUPTED)):
        folder = tmp_path / f"data/encoding/fusion/seed={seed}"
        folder.mkdir()
        record_failure("broken", folder, [], kind)
    ending.on_multirun_end(config)
    assert capsys.readouterr().out.startswith(f"results: {tmp_path}; next: posfuse report")
    with pytest.raises(SystemExit, match="error: 1 of 1 run failed"):
        ending.on_multirun_end(other)


def test_a_worker_gets_no_state_of_the_sweep(sweep):
    assert vars(pickle.loads(pickle.dumps(sweep[1]))) == {}


@pytest.mark.parametrize(
    ("arguments", "own", "path", "command"),
    [
        ("-m seed=0,1", [], ".", "posfuse train 'a=b c'"),
        ("-c job -cd my -cn=top -m --resolve -i", [], "x y:.",
         "PYTHONPATH='x y:.' posfuse train 'a=b c' -cd my -cn=top hydra.mode=RUN"),
        ("-cp ../my -m", [], "x:.", "PYTHONPATH=x:. posfuse train 'a=b c' -cp ../my"),
        ("--config-path ../my -m", ["hydra.mode=MULTIRUN"], "",
         "posfuse train 'a=b c' --config-path ../my"),
        ("-m", ["hydra/launcher=ray", "hydra.searchpath=['file:///my conf']"], ".",
         "PYTHONPATH=. posfuse train 'a=b c' "
         """'hydra.searchpath=['"'"'file:///my conf'"'"']'"""),
    ],
)  # fmt: skip
def test_a_retry_reads_the_config_files_of_the_sweep(arguments, own, path, command, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["posfuse train", *arguments.split()])
    monkeypatch.setenv("PYTHONPATH", path)
    assert retry(["a=b c"], own) == command
    assert retry(["experiment=e"], own).endswith("hydra.mode=RUN")


def test_nothing_is_stopped_if_every_other_run_is_done(sweep, tmp_path, monkeypatch):
    config, ending = sweep
    monkeypatch.setattr(signals, "_received", {})
    signals.request(FAIL_FAST)
    record_failure("broken", tmp_path / RUN, [], "failed")
    ended = "error: 1 of 3 runs failed; sweep.fail_fast stopped the others. Run the same command"
    with pytest.raises(SystemExit, match=ended):
        ending.on_multirun_end(config)
    (tmp_path / OTHER / records.RESULT).touch()
    with pytest.raises(SystemExit, match="error: 1 of 3 runs failed; the others are done"):
        ending.on_multirun_end(config)


def test_an_error_is_one_line_and_not_that_of_an_earlier_handled_error(tmp_path):
    after = [RuntimeError("the reason"), RuntimeError("the reason")]
    after[0].__context__ = ConfigError("data.x: handled")  # without "from", as in libraries
    after[1].__context__ = ConfigAttributeError("handled")
    for error, line in (
        (ConfigError("seed: wrong"), "seed: wrong"),
        (Diverged("at step 3"), "at step 3"),
        (OSError(28, "disk full"), f"{tmp_path}: disk full; fix this and retry; "),
        (OSError(28, "disk full", "a.npy"), "a.npy: disk full; fix this and retry; "),
        (KeyError("x"), f"KeyError: 'x'; see the traceback in {tmp_path}/train.log"),
        *((error, "RuntimeError: the reason; see ") for error in after),
    ):
        assert message_of(error, tmp_path).startswith(line)


def test_an_unexpected_error_has_the_line_of_the_users_own_code(tmp_path, own_module):
    file = own_module("own_table", "import json\n\ndef forward():\n    json.loads('[')\n")
    with pytest.raises(ValueError, match="Expecting") as raised:
        importlib.import_module("own_table").forward()
    error = raised.value.with_traceback(raised.tb.tb_next)  # a run's begins in posfuse
    place = f"line 1 column 2 (char 1) ({file} line 4); see the traceback in "
    assert f": Expecting value: {place}" in message_of(error, tmp_path)


def test_a_failure_that_cannot_be_written_still_has_its_message(tmp_path):
    assert refusal(record_failure, "broken", tmp_path / "absent", [], "failed") == "broken"


def torchs_error():
    with pytest.raises(RuntimeError) as raised:
        torch.empty(2**60, dtype=torch.uint8, device="cpu")
    return raised.value


FULL = [
    MemoryError(),
    OSError(errno.ENOMEM, "Cannot allocate memory"),
    ImportError("libtorch_cpu.so: failed to map segment from shared object"),
    torchs_error(),
    torch.OutOfMemoryError("CUDA out of memory"),
]


@pytest.mark.parametrize("error", FULL, ids=[type(error).__name__ for error in FULL])
def test_every_error_of_memory_has_one_message(error, tmp_path):
    assert message_of(error, tmp_path) == hydra_errors.line_of(error) == NO_MEMORY


def test_other_errors_get_their_own_message():
    # oneDNN gives this message for any error of a kernel.
    others = [RuntimeError("could not create a primitive"), OSError(errno.ENOSPC, "x")]
    assert not any(map(lacks_memory, others))


def test_a_cause_of_itself_ends():
    one, other = ValueError("first"), ValueError("second")
    one.__cause__, other.__cause__ = other, one
    assert reason(one) == "first"
    other.__cause__ = other
    assert reason(other) == "second"


def test_a_module_that_runs_out_of_memory_is_not_an_import_error(own_module):
    own_module("hungry_operator", "raise MemoryError")
    with pytest.raises(MemoryError):
        checked(composed("fusion._target_=hungry_operator.Operator"))
