"""posfuse-train without a run: mistakes in one line, a user's config files, what it shows."""

import os
import sys

from joblib import cpu_count

import posfuse
from posfuse import train
from posfuse.config import NAME_LETTERS
from posfuse.process import devices
from posfuse.runs import records
from processes import assert_one_line
from small_runs import small_overrides

# Each with a folder that does not exist: mistakes in the config are reported before data is read.
MISTAKES = {
    "model.d_modle=8": "d_modle",
    "+model.depth=8": "depth",
    "fusion=gate": "gate_scalar",
    "fusion=gate_cnn +fusion.width=3": "fusion.width",
    "trainer.max_epochs=many": "trainer.max_epochs",
    "model.n_heads=7": "model.n_heads",
    "seed=-1": "seed",
    "seed=0,1": "error: seed=0,1: several values need -m",
    "fusion=gate_cnn fusion.half_width=a": "error: fusion.half_width: must be an integer (got 'a')",
    "~fusion": "~fusion: a run needs fusion.name; use fusion=none instead, or remove this override",
    "-m ~encoding": "error: ~encoding: a run needs encoding.name; use encoding=none instead, or ",
    "~seed": "error: ~seed: a run needs seed; use seed=VALUE instead, or remove this override",
    "+fusion=add": "error: +fusion=add: fusion has a value already; use fusion=add without the +",
    "-m +encoding=none": "+encoding=none: encoding has a value already; use encoding=none without",
    "++fusion=add": "error: ++fusion=add: a group cannot be added by force; use fusion=add",
    "+seed=1": "error: +seed=1: the key has a value; use seed=1",
    "~optim=adam": "error: ~optim=adam: not in the config; remove this override",
    "~nothing": "error: ~nothing: not in the config; remove this override",
    "~model.d_model": "error: model.d_model: cannot be removed; set another value",
    "=1": "error: =1: a group takes one of its names, such as fusion=add",
    "model=3": "error: model=3: a group takes one of its names, such as fusion=add",
    "--config-dir nope": "error: --config-dir: no folder '",
    "fusion.name=[3]": "error: fusion.name: must be a string (got [3])",
    "seed=[0": "seed=[0",
    "seed=0 seed=1": "error: seed: given twice (seed=0 and seed=1); give it once",
    "-m seed=0,1 seed=2,3": "error: seed: given twice (seed=0,1 and seed=2,3); give it once",
    "-m data.path=a,b": "error: data.path: given twice (data.path=",
    "-m cache_dir=a,b": "error: cache_dir=a and cache_dir=b: two runs of this sweep would have one",
    "experiment=tabel1": "tabel1",
    # In a sweep Hydra refuses some at its start, and `checked` refuses others in the first job.
    "-m model.d_modle=8": "d_modle",
    "-m +model.depth=8": "depth",
    "-m model.n_heads=7": "model.n_heads",
}


def test_a_mistake_in_the_config_is_one_line_before_any_data(command, tmp_path):
    absent = tmp_path / "absent"
    data = ["data=folder", "data.name=tiny", f"data.path={absent}", "logger=none"]
    for mistake, named in MISTAKES.items():
        result = command(*data, *mistake.split())
        assert_one_line(result, named)
        assert str(absent) not in result.err.replace(f"data.path={absent}", ""), mistake
    assert not list((tmp_path / "work").rglob("*.npy"))


EMPTY = {
    "output_dir=": "output_dir: '' is empty; name a folder with output_dir=FOLDER",
    "output_dir=/": "output_dir: '/' is the root of the file system; name a folder with",
    "sweep_id=": f"sweep_id: {NAME_LETTERS} (got '')",
    "sweep_id=../up": f"sweep_id: {NAME_LETTERS} (got '../up')",
}
EMPTY_FOLDERS = (("", "hydra.run.dir"), ("-m", "hydra.sweep.dir"), ("-m", "hydra.sweep.subdir"))


def test_no_folder_is_made_for_an_empty_name(command, corpus, tmp_path):
    small = small_overrides(corpus, "cache_dir=cache")
    before = {place: os.listdir(place) for place in ("/", tmp_path, tmp_path / "work")}
    for override, message in EMPTY.items():
        for multirun in ([], ["-m"]):
            result = command(*multirun, *small, override)
            assert_one_line(result, f"error: {message}")
    for multirun, key in EMPTY_FOLDERS:
        for value, what in (("", "empty"), ("/", "the root of the file system")):
            result = command(*multirun.split(), *small, f"{key}={value}")
            message = f"error: {key}: '{value}' is {what}; name a folder with {key}=FOLDER"
            assert_one_line(result, message)
    assert before == {place: os.listdir(place) for place in before}


def test_a_removed_corpus_is_one_line_that_names_the_override(command):
    message = "error: ~data: a run needs data.name; use data=NAME instead, or remove this override"
    for multirun in ([], ["-m"]):
        assert_one_line(command(*multirun, "~data"), message)


# Keys of Hydra that Hydra checks by an assertion, or without naming the key.
HYDRAS = {
    "hydra.launcher=null": "hydra.launcher: null runs nothing; use hydra/launcher=basic",
    "hydra.sweeper=null": "hydra.sweeper: null runs nothing; use hydra/sweeper=posfuse",
    "hydra.verbose=3": "hydra.verbose: use true, false or the names of loggers",
    "hydra.verbose=[1]": "hydra.verbose: use true, false or the names of loggers",
    "hydra.callbacks=3": "hydra.callbacks",
    "hydra.launcher._target_=nope": "hydra.launcher._target_: 'nope' is not a launcher of Hydra; ",
    "hydra.sweeper._target_=nope": "hydra.sweeper._target_: 'nope' is not a sweeper of Hydra; ",
    "hydra.launcher._target_=hydra_plugins.no.No": "hydra.launcher._target_: 'hydra_plugins.no.No'",
    "+hydra.launcher.foo=1": "error: hydra.launcher.foo: unknown key; remove it",
    "+hydra.sweeper.foo=1": "error: hydra.sweeper.foo: unknown key; remove it",
    "seed=range(0)": "error: seed=range(0): no values, so no runs",
}


def test_a_bad_value_of_hydras_own_key_is_one_line(command, corpus):
    for override, message in HYDRAS.items():
        assert_one_line(command("-m", *small_overrides(corpus), override), message)


def test_an_unknown_name_of_a_group_lists_the_known_ones(command, corpus):
    result = command(*small_overrides(corpus), "model=smal")
    assert_one_line(result, "error: model: no 'smal'; use one of paper paper_long pretrained small")


def test_an_absent_folder_is_one_line_that_names_it(command, corpus, tmp_path):
    overrides = small_overrides(corpus, f"data.path={tmp_path / 'absent'}", "logger=wandb")
    assert_one_line(command(*overrides), f"error: data.path: no folder {tmp_path / 'absent'}")
    (failure,) = (tmp_path / "work").rglob(records.FAILURE)
    assert "no folder" in failure.read_text()


def test_an_unknown_key_in_an_experiment_file_is_one_line_that_names_it(command, tmp_path):
    (tmp_path / "conf" / "experiment").mkdir(parents=True)
    (tmp_path / "conf" / "experiment" / "bad.yaml").write_text(
        "# @package _global_\nmodel: {d_modle: 8}\n"
    )
    result = command("--config-dir", tmp_path / "conf", "experiment=bad")
    assert_one_line(result, "d_modle", "d_model")


def test_a_config_file_that_cannot_be_read_is_named_with_what_is_wrong(command, tmp_path):
    folder = tmp_path / "conf" / "fusion"
    folder.mkdir(parents=True)
    (folder / "open.yaml").write_text("name: [foo\n  x: }\n")
    (folder / "control.yaml").write_bytes(b'name: "\x01"\n')
    (folder / "latin.yaml").write_bytes(b"name: caf\xe9\n")
    for name, message in (
        ("open", "not YAML (line 2, column 4: expected ',' or ']', but got ':'); correct"),
        ("control", "unacceptable character #x0001"),
        ("latin", "not UTF-8 (byte 0xe9); save it as UTF-8"),
    ):
        result = command("--config-dir", folder.parent, f"fusion={name}")
        assert_one_line(result, str(folder / f"{name}.yaml"), message)


def test_the_file_that_is_not_utf_8_is_the_one_that_was_chosen(command, tmp_path):
    folder = tmp_path / "conf" / "fusion"
    (folder / "dir.yaml").mkdir(parents=True)
    (folder / "dang.yaml").symlink_to(tmp_path / "absent")
    (tmp_path / "conf" / "data").mkdir()
    (tmp_path / "texts").mkdir()
    read = [folder / "a.yaml", folder / "b.yaml"]
    for file in (*read, tmp_path / "conf" / "data" / "b.yaml", tmp_path / "texts" / "c.yaml"):
        file.write_bytes(b"name: caf\xe9\n")
    texts = f"data.path={tmp_path / 'texts'}"
    for option in (["--config-dir", folder.parent], [f"-cd={folder.parent}"]):
        for name in ("a", "b"):
            result = command(texts, *option, f"fusion={name}", "-c", "job")
            assert_one_line(result, f"error: {folder / name}.yaml: not UTF-8 (byte 0xe9); save it")
    sweep = command("-m", "--config-dir", folder.parent, "fusion=add,b")
    assert_one_line(sweep, f"error: {folder / 'b'}.yaml: not UTF-8 (byte 0xe9); save it")


def test_a_config_file_without_keys_is_named(command, tmp_path):
    for group in ("data", "encoding", "fusion"):
        for text in ("- 1\n", "words\n", ""):
            file = tmp_path / "conf" / group / "mine.yaml"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
            mine = ["--config-dir", tmp_path / "conf", f"{group}=mine"]
            message = f"error: {file}: holds no keys; write key: value, as in the files of "
            assert_one_line(command(*mine), message)
            if group == "fusion":
                wrong = command(*mine, "trainer.foo=1")
                assert_one_line(wrong, message if text else "error: trainer.foo: unknown key")


def test_overrides_may_stand_on_both_sides_of_an_option(command, tmp_path):
    (tmp_path / "conf").mkdir()
    both = ["trainer.patience=3", "--config-dir", tmp_path / "conf", "seed=4", "--cfg", "job"]
    shown = command(*both, "model.n_layers=3", "--package", "trainer.patience", "optim.lr=1")
    assert shown == (0, "3\n", "")
    wrong = command("a=1", "--config-dir", tmp_path / "conf", "fusion=foo")
    assert_one_line(wrong, "fusion: no 'foo'; use one of add ")


def test_info_may_stand_on_both_sides_of_an_override(command):
    for given in ("fusion=concat --info", "fusion=concat -i", "--info fusion=concat",
                  "fusion=concat -i all seed=1"):  # fmt: skip
        shown = command(*given.split())
        assert (shown.code, shown.err) == (0, ""), given
        assert "fusion: concat" in shown.out


def test_an_option_may_be_abbreviated(command, tmp_path):
    shown = command("seed=7", "--config-d", tmp_path, "--cfg", "job", "-p", "seed")
    assert shown == (0, "7\n", "")


def test_the_version_is_that_of_posfuse(command):
    assert command("--version") == (0, f"posfuse {posfuse.__version__}\n", "")


def test_the_parallel_launcher_refuses_what_starts_no_run(command, corpus, tmp_path):
    cores = cpu_count()
    for override, message in {
        "+hydra.launcher.nonsense=1": "nonsense: unknown key; remove it",
        "+hydra.launcher.initializer=1": "initializer: unknown key; remove it",
        "+hydra.launcher.batch_size=1": "batch_size: unknown key; remove it",
        "hydra.launcher.n_jobs=abc": "n_jobs: must be 1 or more, or -1",
        f"hydra.launcher.n_jobs={cores + 1}": f"n_jobs: must be at most {cores}, the number of "
        f"runs that fit on the cores (got {cores + 1}); use fewer, or raise "
        "hydra.launcher.runs_per_core\n",
    }.items():
        result = command("-m", *small_overrides(corpus), "hydra/launcher=parallel", override)
        assert_one_line(result, f"error: hydra.launcher.{message}")
    assert not list(tmp_path.rglob("config.yaml"))


def test_a_launcher_names_the_packages_that_it_needs(command, corpus, monkeypatch):
    for name, packages in (("ray", "ray>=2.40"), ("submitit", "hydra-submitit-launcher")):
        monkeypatch.setitem(sys.modules, name, None)  # as if it were not installed
        launcher = "hydra/launcher=" + {"submitit": "slurm"}.get(name, name)
        result = command("-m", *small_overrides(corpus), launcher)
        assert_one_line(result, f"error: {launcher}: ", "; run pip install ", packages)


def test_the_parallel_launcher_gives_each_run_the_same_number_of_gpus(
    command, corpus, monkeypatch, tmp_path
):
    monkeypatch.setattr(devices, "gpus", lambda: ["0", "1"])
    argv = ["-m", *small_overrides(corpus, "trainer.accelerator=auto"), "hydra/launcher=parallel"]
    for wrong, message in {
        "hydra.launcher.n_jobs=3": "hydra.launcher.n_jobs: must be at most 2, the number of runs "
        "that fit on the GPUs",
        "trainer.devices=3": "trainer.devices: must be at most 2, the number of GPUs (got 3)",
        "trainer=default,ddp": "trainer.devices: hydra/launcher=parallel gives each run as many ",
    }.items():
        assert_one_line(command(*argv, "seed=0,1,2", wrong), f"error: {message}")
    assert not list(tmp_path.rglob("config.yaml"))


def test_an_error_outside_of_a_run_is_one_line(command, monkeypatch):
    raised = iter(
        [
            OSError(28, "disk full", "a.log"),
            OSError(28, "disk full"),
            KeyError("x"),
            BrokenPipeError(32, "no reader"),
        ]
    )

    def job():
        raise next(raised)

    monkeypatch.setattr(train, "job", job)
    assert_one_line(command(), "error: a.log: disk full; fix this and retry; ")
    assert_one_line(command(), "error: disk: disk full; fix this and retry; ")
    assert_one_line(command(), "error: KeyError: 'x'; set HYDRA_FULL_ERROR=1 to see")
    assert command() == (1, "", "")
