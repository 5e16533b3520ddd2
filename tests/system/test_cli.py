"""The commands as a user sees them: sweeps, failures and how to retry them, one-line errors."""

import json
import os
import re
import shlex
import subprocess
import sys

import pytest

import posfuse
from posfuse.config import run_folder
from posfuse.runs import records
from processes import assert_one_line
from small_runs import small_overrides, write_corpus


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("cli") / "corpus")


@pytest.fixture
def small(corpus):
    """The overrides of a run of one epoch."""
    overrides = [o for o in small_overrides(corpus) if not o.startswith("trainer.max_epochs")]
    return [*overrides, "trainer.max_epochs=1"]


def folder_of(tmp_path, overrides, seed):
    """Make the folder of the run with these overrides."""
    run = run_folder("tiny", "sinusoidal", "add", seed, overrides)
    folder = tmp_path / "work" / "multirun" / "default" / run
    folder.mkdir(parents=True)
    return folder


@pytest.mark.smoke
def test_a_sweep_is_reported_and_the_same_call_skips_what_is_done(small, tmp_path):
    """Each command in a process of its own."""
    train = [sys.executable, "-m", "posfuse.train", "-m", *small, "sweep_id=first"]
    train += ["fusion=add,concat", "seed=0,1"]
    report = [sys.executable, "-m", "posfuse.analysis.report", "multirun/first"]

    def call(command):
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    first = call(train)
    assert first.returncode == 0, first.stderr
    results = sorted((tmp_path / "multirun" / "first").rglob("result.json"))
    cells = [path.relative_to(tmp_path / "multirun" / "first").parts for path in results]
    assert [(*parts[:3], parts[-2]) for parts in cells] == [
        ("tiny", "sinusoidal", fusion, f"seed={seed}")
        for fusion in ("add", "concat")
        for seed in (0, 1)
    ]
    assert first.stdout.count("test accuracy") == 4
    assert "done already" not in first.stdout

    written = [path.stat().st_mtime_ns for path in results]
    second = call(train)
    assert second.returncode == 0, second.stderr
    assert second.stdout.count("done already") == 4
    assert "epoch 1/1" not in second.stdout
    assert written == [path.stat().st_mtime_ns for path in results]

    shown = call(report)
    assert shown.returncode == 0, shown.stderr
    assert (tmp_path / "multirun" / "first" / "report" / "index.html").exists()
    accuracy = [100 * json.loads(path.read_text())["test"]["accuracy"] for path in results]
    row = next(line for line in shown.stdout.splitlines() if " posfuse " in line)  # of Table 1
    means = [(accuracy[0] + accuracy[1]) / 2, (accuracy[2] + accuracy[3]) / 2]
    assert re.findall(r"([\d.]+) ± [\d.]+ \(2\)", row) == [f"{mean:.2f}" for mean in means]
    assert f"{means[1] - means[0]:+.2f} ± " in shown.stdout
    assert "missing: 0 of 4 runs" in shown.stdout


def test_a_sweep_continues_after_a_failed_run_and_prints_how_to_retry_it(run, small, tmp_path):
    folder = write_corpus(tmp_path / "a folder", n_classes=3)
    common = [o for o in small if not o.startswith("data.path")]
    sweep = [*common, f"data.path='{folder}'", "data.limit=null,2", "seed=0,1"]
    result = run("posfuse-train", "-m", *sweep)
    root = tmp_path / "work" / "multirun" / "default"
    assert result.code != 0
    assert len(list(root.rglob("result.json"))) == 2
    reported, summary = result.err.partition("error: 2 run(s) failed; the others are done.")[::2]
    assert reported.count("failed: tiny/sinusoidal/add/") == 2
    assert "Traceback" not in result.out + result.err
    commands = [line.strip() for line in summary.splitlines() if "posfuse-train" in line]
    assert len(commands) == 2
    reason = f"{folder / 'train.parquet'}: cannot take 2 of 60 documents with every class"
    assert reported.count(reason) == summary.count(reason) == 2

    listed = run("posfuse-report", "multirun/default").out
    assert listed.count("cannot take 2 of 60") == 2

    write_corpus(folder, n_classes=2)
    done = {path: path.stat().st_mtime_ns for path in root.rglob("result.json")}
    again = run(*shlex.split(commands[0]))
    assert again.code == 0, again.err
    results = list(root.rglob("result.json"))
    assert len(results) == 3  # that run alone, in the sweep's folder
    assert all(path.stat().st_mtime_ns == time for path, time in done.items())
    assert len(list(root.rglob("failure.json"))) == 1


def test_after_a_fix_the_same_sweep_repeats_only_the_failed_runs(run, small, tmp_path):
    folder = folder_of(tmp_path, small, seed=1)
    (folder / "result.json").write_text("{")
    sweep = ["posfuse-train", "-m", *small, "seed=0,1,2"]
    first = run(*sweep)
    assert first.code != 0
    assert "error: 1 run(s) failed" in first.err
    assert "not a readable record" in first.err
    assert first.out.count("test accuracy") == 2
    (folder / "result.json").unlink()
    second = run(*sweep)
    assert second.code == 0, second.err
    assert second.out.count("done already") == 2
    assert (folder / "result.json").exists()
    assert not list(folder.parent.rglob("failure.json"))


# Each with a folder that does not exist: mistakes in the config are reported before data is read.
MISTAKES = {
    "unknown key": (["model.d_modle=8"], "d_modle"),
    "added unknown key": (["+model.depth=8"], "depth"),
    "unknown fusion": (["fusion=gate"], "gate_scalar"),
    "unknown option of a fusion": (["fusion=gate_cnn", "+fusion.width=3"], "fusion.width"),
    "wrong type": (["trainer.max_epochs=many"], "trainer.max_epochs"),
    "heads that do not divide": (["model.n_heads=7"], "model.n_heads"),
    "negative seed": (["seed=-1"], "seed"),
    "a name that is not a text": (["fusion.name=[3]"], "error: fusion.name: [3] is not a text"),
    "syntax": (["seed=[0"], "seed=[0"),
    "unknown experiment": (["experiment=tabel1"], "tabel1"),
}


# In a sweep Hydra refuses some at its start, and `checked` refuses others in the first job.
IN_SWEEPS = ("unknown key", "added unknown key", "heads that do not divide")


@pytest.mark.parametrize(
    ("mistake", "multirun"), [*((m, []) for m in MISTAKES), *((m, ["-m"]) for m in IN_SWEEPS)]
)
def test_a_mistake_in_the_config_is_one_line_before_any_data(mistake, multirun, run, tmp_path):
    overrides, named = MISTAKES[mistake]
    absent = tmp_path / "absent"
    data = ["data=folder", "data.name=tiny", f"data.path={absent}", "logger=none"]
    result = run("posfuse-train", *multirun, *data, *overrides)
    assert_one_line(result, named)
    assert str(absent) not in result.err.replace(f"data.path={absent}", "")
    assert not list((tmp_path / "work").rglob("*.npy"))


@pytest.mark.parametrize("multirun", [[], ["-m"]], ids=["run", "sweep"])
@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("output_dir=", "output_dir: '' is empty; name a folder with output_dir=FOLDER"),
        ("output_dir=/", "output_dir: '/' is the root of the file system; name a folder with"),
        (
            "sweep_id=",
            "sweep_id: the name '' becomes a folder; use letters (A-Z, a-z), digits, _.-",
        ),
        ("sweep_id=../up", "sweep_id: the name '../up' becomes a folder; use letters"),
    ],
)
def test_no_folder_is_made_for_an_empty_name(override, message, multirun, run, small, tmp_path):
    before = {place: os.listdir(place) for place in ("/", tmp_path, tmp_path / "work")}
    result = run("posfuse-train", *multirun, *small, "cache_dir=cache", override)
    assert_one_line(result, f"error: {message}")
    (tmp_path / "work.out").unlink()
    (tmp_path / "work.err").unlink()
    assert before == {place: os.listdir(place) for place in before}


@pytest.mark.parametrize(
    ("multirun", "key"),
    [([], "hydra.run.dir"), (["-m"], "hydra.sweep.dir"), (["-m"], "hydra.sweep.subdir")],
)
def test_an_empty_folder_of_hydra_is_refused(multirun, key, run, small, tmp_path):
    for value, what in (("", "empty"), ("/", "the root of the file system")):
        result = run("posfuse-train", *multirun, *small, "cache_dir=cache", f"{key}={value}")
        message = f"error: {key}: '{value}' is {what}; name a folder with {key}=FOLDER"
        assert_one_line(result, message)
    assert not list((tmp_path / "work").iterdir())


def test_two_corpora_of_one_name_need_another_name(run, small, tmp_path):
    one, other = (write_corpus(tmp_path / name, seed=n) for n, name in enumerate(("a", "b")))
    rest = [o for o in small if not o.startswith("data.path")]
    assert run("posfuse-train", *rest, f"data.path={one}").code == 0
    result = run("posfuse-train", *rest, f"data.path={other}")
    message = "result.json: holds the result of other texts that are also named 'tiny'; set "
    assert_one_line(
        result, message + "data.name=NAME for these texts, or remove that file to run again"
    )
    assert run("posfuse-train", *rest, f"data.path={other}", "data.name=other").code == 0


def test_an_unknown_key_in_an_experiment_file_is_one_line_that_names_it(run, tmp_path):
    (tmp_path / "conf" / "experiment").mkdir(parents=True)
    (tmp_path / "conf" / "experiment" / "bad.yaml").write_text(
        "# @package _global_\nmodel: {d_modle: 8}\n"
    )
    result = run("posfuse-train", "--config-dir", tmp_path / "conf", "experiment=bad")
    assert_one_line(result, "d_modle", "d_model")


def test_the_version_is_that_of_posfuse(run):
    shown = run("posfuse-train", "--version")
    assert (shown.code, shown.out) == (0, f"posfuse {posfuse.__version__}\n")


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
}


@pytest.mark.parametrize("override", HYDRAS)
def test_a_bad_value_of_hydras_own_key_is_one_line(override, run, small):
    assert_one_line(run("posfuse-train", "-m", *small, override), HYDRAS[override])


def test_a_sweep_over_nothing_is_one_line_that_names_it(run, small):
    assert_one_line(run("posfuse-train", "-m", *small, "seed=range(0)"), "seed=range(0)")


def test_an_absent_folder_is_one_line_that_names_it(run, small, tmp_path):
    result = run("posfuse-train", *small, f"data.path={tmp_path / 'absent'}")
    assert_one_line(result, f"no folder {tmp_path / 'absent'}")


def test_a_second_process_on_one_run_gets_one_line(run, small, tmp_path):
    folder = folder_of(tmp_path, small, seed=0)
    with records.sole_use(folder):
        result = run("posfuse-train", *small)
    assert_one_line(result, "another process is running this run")
    assert run("posfuse-train", *small).code == 0


@pytest.fixture
def full_disk(tmp_path):
    """A file system of 200 kB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=200k", "tmpfs", str(folder)]
    try:
        mounted = subprocess.run(mount, capture_output=True, check=False).returncode == 0
    except OSError:
        mounted = False
    if not mounted:
        pytest.skip("mounting a small file system needs root")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.parametrize("left", [0, 24_000])
def test_a_full_disk_is_one_line_and_the_run_resumes_once_there_is_room(
    left, run, small, full_disk
):
    wide = ["model.d_model=64", f"output_dir={full_disk / 'runs'}"]  # weights above 24 kB
    filler = full_disk / "filler"
    filler.write_bytes(bytes(100_000))
    free = os.statvfs(full_disk)
    with filler.open("ab") as file:
        file.write(bytes(free.f_bavail * free.f_bsize - left))
    result = run("posfuse-train", *small, *wide)
    assert_one_line(result)
    assert not list(full_disk.rglob("result.json"))
    assert "finished runs are skipped" in result.err
    filler.unlink()
    subprocess.run(["mount", "-o", "remount,size=8m", str(full_disk)], check=True)
    assert run("posfuse-train", *small, *wide).code == 0
