"""posfuse train without a run: mistakes in one line, a user's config files, what it shows."""

import os
import sys

import pytest
import torch

from posfuse import train
from posfuse.config import CONF_DIR
from posfuse.errors import InputError
from posfuse.limits import NAME_LETTERS
from posfuse.process import devices
from posfuse.runs import records
from processes import assert_one_line
from small_runs import small_config, small_overrides

# Keys that Hydra checks by an assertion, or without naming the key.
HYDRAS = (
    "hydra.launcher=null", "hydra.sweeper=null", "hydra.sweeper=3", "hydra.verbose=3",
    "hydra.verbose=[1]", "hydra.callbacks=3", "hydra.launcher._target_=nope",
    "hydra.sweeper._target_=nope", "hydra.launcher._target_=hydra_plugins.no.No",
    "+hydra.launcher.foo=1", "+hydra.sweeper.foo=1", "seed=range(0)",
)  # fmt: skip

# Each with a folder that does not exist: mistakes in the config are reported before data is read.
MISTAKES = {
    "seed=range(a)": "error: seed=range(a): mismatch type argument start",
    "fusion=gate_cnn fusion.half_width=a": "fusion.half_width: Value 'a' of type 'str' could",
    "~fusion": "error: ~fusion: hydra.run.dir: Interpolation key 'fusion.name' not found",
    "optim.lr=${nope}": "error: optim.lr=${nope}: hydra.run.dir: Interpolation key 'nope' not",
    "+fusion=add": "error: +fusion=add: fusion appears more than once",
    "++fusion=add": "error: ++fusion=add: force-add of config groups is not supported",
    "+seed=1": "error: +seed=1: Could not append to config. An item is already at 'seed'. ",
    "~model.d_model": "error: model.d_model: ModelConfig (DictConfig) does not support deletion",
    "=1": "error: =1: ValueError: Config group override must be a string or a list",
    "--config-dir nope": "error: --config-dir: no folder ",
    "hydra.searchpath=[nope]": "error: hydra.searchpath: no folder ",
    "--config-name nope": "error: Cannot find primary config 'nope'",
    "experiment=tabel1": "tabel1",
    "fusion=add,concat seed=1": "error: fusion=add,concat: several values; add -m for a sweep\n",
    "encoding=[rope,sinusoidal]": "must be one file of conf/encoding; for several runs use -m",
    "hydra.launcher.n_jobs=2": "choose a launcher that has it, such as hydra/launcher=parallel",
    "hydra.sweeper.n_trials=3": "choose a sweeper that has it, such as hydra/sweeper=optuna",
    "optim.lr=1,2": "error: optim.lr=1,2: several values; add -m for a sweep, or write key=[a,b]",
    "hydra/sweeper=optuna optim.lr=interval(1,2)": "error: optim.lr=interval(1,2): several values; "
    "add -m for a sweep\n",
    "fusion=choice(add,concat)": "error: fusion=choice(add,concat): several values; add -m for a ",
    "-m fusion=add,concat --cfg job": "error: Only one of --run, --multirun, --cfg",
    "experiment=quickstart": "error: experiment=quickstart: this is a sweep over data, encoding, ",
    "experiment=table2 fusion=add": "error: experiment=table2: this is a sweep over ",
    "hydra.run.dir=x": "error: hydra.run.dir: set output_dir=FOLDER and sweep_id=NAME instead",
    **{f"-m {override}": f"error: {override}: " for override in HYDRAS},
    "seeds=0": "error: seeds=0: ",
    "trainer=true": "error: trainer=true: ",
    "data.corpus.id=x": "error: data.corpus.id=x: ",
}


def test_several_values_with_spaces_are_named_without_other_arguments(command):
    result = command("hydra/sweeper=optuna", "optim.lr=tag(log, interval(1, 2))")
    assert_one_line(result, "error: optim.lr=tag(log, interval(1, 2)): several values; add -m")


def test_a_mistake_in_the_config_is_one_line_before_any_data(command, tmp_path):
    absent = tmp_path / "absent"
    data = ["data=folder", "data.name=tiny", f"data.path={absent}", "logger=none"]
    for mistake, named in MISTAKES.items():
        result = command(*data, *mistake.split())
        assert_one_line(result, named)
        assert str(absent) not in result.err.replace(f"data.path={absent}", ""), mistake
    assert not list((tmp_path / "work").rglob("*.npy"))


def test_a_machine_without_the_device_chooses_no_precision(command, corpus, tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    own = ["trainer=gpu", "speed=fast", "trainer.precision=fastest", "trainer.accelerator=gpu"]
    refused = command(*small_overrides(corpus, *own, "model.d_model=128"))
    assert_one_line(refused, "error: trainer.accelerator: this machine has no gpu")
    assert not list(tmp_path.rglob(".bfloat16*"))


def test_a_finished_run_needs_no_device_and_its_line_tells_what_it_lacks(
    command, corpus, monkeypatch
):
    short = small_overrides(corpus, "trainer.max_epochs=1", "trainer.precision=fastest")
    assert command(*short, "trainer.mechanism=false").code == 0
    monkeypatch.setattr(train, "device_of", lambda _: pytest.fail("asked for the device"))
    measured = "; to write mechanism.parquet, remove its result.json and run it again\n"
    for mechanism, is_told in (("false", False), ("true", True)):
        skipped = command(*short, f"trainer.mechanism={mechanism}")
        assert (skipped.code, skipped.err) == (0, "")
        assert "seed=0: already done, test accuracy 0." in skipped.out
        assert (measured in skipped.out) == is_told


def test_without_the_device_a_damaged_run_keeps_its_files(command, corpus, monkeypatch, tmp_path):
    short = small_overrides(corpus, "trainer.max_epochs=1")
    assert command(*short).code == 0
    (result,) = tmp_path.rglob("result.json")
    (result.parent / "predictions.parquet").write_bytes(b"")

    def no_device(_):
        raise InputError("trainer.accelerator: this machine has no cuda")

    monkeypatch.setattr(train, "device_of", no_device)
    assert_one_line(command(*short), "error: trainer.accelerator: this machine has no cuda")
    assert result.exists()


EMPTY = {
    "output_dir=": "output_dir: '' is empty; name a folder with output_dir=FOLDER",
    "output_dir=/": "output_dir: '/' is the root of the file system; name a folder with",
    "sweep_id=": f"sweep_id: {NAME_LETTERS} (got '')",
    "sweep_id=../up": f"sweep_id: {NAME_LETTERS} (got '../up')",
}


@pytest.mark.slow
def test_no_folder_is_made_for_an_empty_name(command, corpus, tmp_path):
    small = small_overrides(corpus, "cache_dir=cache")
    places = (tmp_path, tmp_path / "work", "/")
    before = {place: sorted(os.listdir(place)) for place in places}
    for override, message in EMPTY.items():
        for multirun in ([], ["-m"]):
            result = command(*multirun, *small, override)
            assert_one_line(result, f"error: {message}")
    assert before == {place: sorted(os.listdir(place)) for place in places}


def test_a_removed_corpus_is_one_line_that_names_the_override(command):
    for multirun in ([], ["-m"]):
        assert_one_line(command(*multirun, "~data"), "error: ~data: ", "value: data.name")


def test_an_absent_folder_is_one_line_that_names_it(command, corpus, tmp_path):
    overrides = small_overrides(corpus, f"data.path={tmp_path / 'absent'}", "logger=wandb")
    assert_one_line(command(*overrides), f"error: data.path: no folder {tmp_path / 'absent'}")
    (failure,) = (tmp_path / "work").rglob(records.FAILURE)
    assert "no folder" in failure.read_text()


def test_a_refused_single_run_is_no_failed_run(command, corpus, tmp_path):
    """The second command is refused after its run has started, when the model is built."""
    cases = {"trainer.devices=0": 0, "fusion=gate_cnn fusion.half_width=-1": 1}
    for own, failures in cases.items():
        assert_one_line(command(*small_overrides(corpus, *own.split())), "error: ")
        assert len([*(tmp_path / "work").rglob(records.FAILURE)]) == failures


def test_accuracies_by_length_follow_the_metric_in_the_result_line(corpus):
    cfg = small_config(corpus, "trainer.monitor=macro_f1")
    record = {
        "test": {"accuracy": 0.9, "macro_f1": 0.3}, "lengths": {80: {"accuracy": 0.5}},
        "truncated_share": {"train": 0}, "best_epoch": 2, "epochs": 3, "seconds": {"fit": 7},
    }  # fmt: skip
    start = "x: test accuracy 0.9000, 0.5000 at length 80, macro f1 0.3000, best epoch 2 of 3, 7 s"
    assert train.result_line(cfg, "x", record) == start


UNREADABLE = "error: {file}: ", "; correct the file"
# A user's file, its content, more overrides, and parts of the message.
FILES = [
    ("experiment/bad", b"# @package _global_\nmodel: {d_modle: 8}\n", [],
     ["error: experiment/bad.yaml: model.d_modle: unknown key; use model.d_model\n"]),
    ("fusion/open", b"name: [foo\n  x: }\n", [], [*UNREADABLE, "expected ',' or ']', but got ':'"]),
    ("fusion/control", b'name: "\x01"\n', [], [*UNREADABLE, "unacceptable character #x0001"]),
    ("fusion/latin", b"name: caf\xe9\n", [], [*UNREADABLE, "'utf-8' codec can't decode byte 0xe9"]),
    ("encoding/list", b"- 1\n", [], ["raised while composing config", "encoding/list"]),
    ("encoding/word", b"words\n", [], ["encoding.words: unknown key", "encoding/word.yaml"]),
    # An operator's file may have keys of its own.
    ("fusion/word", b"words\n", [],
     ["fusion=word", "'fusion.name' not found; choose a file of fusion that has the key name\n"]),
    ("encoding/noname", b"table: {}\n", [],
     ["encoding=noname", "encoding.name; choose a file of encoding that has the key name\n"]),
    ("data/empty", b"", [],
     ["data=empty", "data.name; choose a file of data that has the key name\n"]),
    ("data/empty", b"", ["trainer.foo=1"], ["error: trainer.foo: unknown key"]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "content", "more", "parts"), FILES, ids=[name for name, *_ in FILES]
)
def test_a_mistake_in_a_config_file_is_one_line_that_names_it(
    name, content, more, parts, command, tmp_path
):
    file = tmp_path / "conf" / f"{name}.yaml"
    file.parent.mkdir(parents=True)
    file.write_bytes(content)
    result = command("--config-dir", tmp_path / "conf", name.replace("/", "="), *more)
    assert_one_line(result, *(part.format(file=file) for part in parts))


def test_a_run_without_overrides_says_what_it_trains_before_it_starts(command, monkeypatch):
    def stop(*_):
        raise InputError("stopped")

    monkeypatch.setattr(train, "train", stop)
    for overrides, is_default in (((), True), (("seed=1",), False)):
        result = command(*overrides)
        assert result.err.endswith("error: stopped\n")
        assert (train.DEFAULT in result.out + result.err) == is_default


def test_overrides_may_stand_on_both_sides_of_an_option(command, tmp_path):
    (tmp_path / "conf").mkdir()
    both = ["trainer.patience=3", "--config-dir", tmp_path / "conf", "seed=4", "--cfg", "job"]
    shown = command(*both, "model.n_layers=3", "--package", "trainer.patience", "optim.lr=1")
    assert shown == (0, "3\n", "")
    wrong = command("a=1", "--config-dir", tmp_path / "conf", "fusion=foo")
    assert_one_line(wrong, "fusion: no 'foo'; use one of add, ")


def test_the_file_of_a_task_may_set_the_monitor(command, tmp_path):
    """As docs/tasks.md says of a task without an accuracy."""
    own = tmp_path / "conf/task/own.yaml"
    own.parent.mkdir(parents=True)
    first = (CONF_DIR / "task/language_model.yaml").read_text().splitlines()[0]
    own.write_text(f"{first}\ntask: {{name: own}}\ntrainer: {{monitor: metric}}\n")
    shown = ["--cfg", "job", "--package", "trainer.monitor"]
    assert command("-cd", tmp_path / "conf", "task=own", *shown) == (0, "metric\n", "")


def test_a_launcher_names_the_packages_that_it_needs(command, corpus, monkeypatch):
    for name, module, packages in (
        ("ray", "ray", "ray>=2.40"),
        ("slurm", "submitit", "hydra-submitit-launcher"),
    ):
        monkeypatch.setitem(sys.modules, module, None)  # as if it were not installed
        result = command("-m", *small_overrides(corpus), f"hydra/launcher={name}")
        start = f"error: hydra/launcher={name}: "
        assert_one_line(result, start, "; run pip install ", packages)


@pytest.mark.slow
def test_the_parallel_launcher_gives_each_run_the_same_number_of_gpus(
    command, corpus, monkeypatch, tmp_path
):
    monkeypatch.setattr(devices, "gpus", lambda: ["0", "1"])
    argv = ["-m", *small_overrides(corpus, "trainer.accelerator=auto"), "hydra/launcher=parallel"]
    (tmp_path / "conf" / "machine").mkdir(parents=True)  # a group of the user's own
    for n in (1, 2):
        content = f"# @package _global_\ntrainer:\n  devices: {n}\n"
        (tmp_path / "conf" / "machine" / f"of_{n}.yaml").write_text(content)
    for own in ("trainer=default,ddp", "+machine=of_1,of_2"):
        refused = command(*argv, "seed=0,1,2", own, "--config-dir", tmp_path / "conf")
        assert_one_line(refused, "error: trainer.devices: must be one number for all runs ")
    assert not list(tmp_path.rglob("config.yaml"))


def test_an_error_outside_of_a_run_is_one_line(command, monkeypatch):
    def job():
        raise next(errors)

    errors = iter([OSError(28, "disk full", "a.log"), KeyError("x")])
    monkeypatch.setattr(train, "job", job)
    assert_one_line(command(), "error: a.log: disk full; fix this and retry")
    assert_one_line(command(), "error: KeyError: 'x'; set HYDRA_FULL_ERROR=1 to see")


def test_help_ends_with_the_config_of_its_overrides(command):
    result = command("-m", "--help", "model=paper", "seed=7")
    assert (result.code, result.err) == (0, "")
    assert result.out.startswith("usage: posfuse train ")
    assert "\n\nseed: 7\n" in result.out
