"""Damaged files, full or read-only disks, two sweeps at once, and clocks that jump: a run gives the
numbers of an undisturbed one, or one line that names the file and the fix."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from commands import called
from posfuse.errors import InputError
from posfuse.runs import records
from posfuse.train import train
from processes import HANG, assert_same_files, command, ended, importing, started, succeeded
from small_runs import interrupted, small_config, write_corpus
from sweeps import assert_same_results, one_after_another, sweep

pytestmark = pytest.mark.slow
TRIALS = 25  # a file and a kind of damage


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A config, its finished run, and its run that was interrupted in its third epoch."""
    root = tmp_path_factory.mktemp("damage")
    cfg = small_config(write_corpus(root / "corpus"))
    done, begun = (root / "sweep" / "tiny" / "none" / "add" / f"seed={n}" for n in (0, 1))
    done.mkdir(parents=True)
    train(cfg, done)
    begun.mkdir(parents=True)
    interrupted(cfg, begun, 9)
    return cfg, done, begun


def truncated(content, draw):
    return content[: draw.integers(len(content))]


def flipped(content, draw):
    """One bit."""
    damaged = bytearray(content)
    damaged[draw.integers(len(content))] ^= 1 << draw.integers(8)
    return bytes(damaged)


def error_of(cfg, folder):
    """What training raises, or None."""
    try:
        train(cfg, folder)
    except (InputError, OSError) as error:
        return error


IN_ENDED = ["checkpoints/last.ckpt", "checkpoints/best.ckpt", "config.yaml"]
IN_DONE = ["result.json", "predictions.parquet", "diagnostics.parquet", "history.csv"]
IN_DONE += ["SHA256SUMS", "checkpoints/best.ckpt", "config.yaml"]


@pytest.mark.parametrize("damage", [truncated, flipped])
@pytest.mark.parametrize(
    ("is_done", "name"),
    [*((False, name) for name in IN_ENDED), *((True, name) for name in IN_DONE)],
)
def test_a_damaged_file_of_a_run_is_named_or_does_not_matter(
    is_done, name, damage, world, tmp_path
):
    cfg, done, begun = world
    draw = np.random.default_rng(0)
    for _ in range(TRIALS):
        folder = Path(shutil.copytree(done if is_done else begun, tmp_path / "run"))
        (folder / name).write_bytes(damage((folder / name).read_bytes(), draw))
        error = error_of(cfg, folder)
        if error is None:
            assert_same_files(done, folder)
        else:
            assert isinstance(error, InputError)
            assert re.fullmatch(f".*{re.escape(str(folder))}.*remove.*", str(error))
        shutil.rmtree(folder)


@pytest.mark.parametrize("damage", [truncated, flipped])
@pytest.mark.parametrize("name", IN_DONE)
def test_a_report_leaves_a_damaged_file_out_and_names_it(name, damage, world, tmp_path):
    draw = np.random.default_rng(0)
    run = Path("tiny/none/add/seed=0")
    shutil.copytree(world[1], tmp_path / "good" / run)
    called("report", tmp_path / "good", "--out", tmp_path / "expected")
    expected = (tmp_path / "expected" / "tables" / "table1.csv").read_bytes()
    for _ in range(5):
        sweep = tmp_path / "sweep"
        shutil.copytree(tmp_path / "good", sweep)
        path = sweep / run / name
        path.write_bytes(damage(path.read_bytes(), draw))
        said, error = called("report", sweep)
        table = sweep / "report" / "tables" / "table1.csv"
        if error or table.read_bytes() != expected:
            # With damaged digests, the message names a file that does not match them.
            named = str(path.parent if name == records.SUMS else path)
            assert named in "".join(f"{said}{error}".split("\n"))
        shutil.rmtree(sweep)


@pytest.fixture
def small_disk(tmp_path):
    """A function that mounts a file system with the given options."""
    folder = tmp_path / "disk"
    folder.mkdir()

    def mount(options):
        argv = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
        if subprocess.run(argv, capture_output=True, check=False).returncode:
            pytest.skip("mounting a file system needs root")
        return folder

    yield mount
    subprocess.run(["umount", str(folder)], capture_output=True, check=False)


def test_a_run_on_a_full_disk_resumes_once_there_is_room(small_disk, world, tmp_path):
    cfg, reference, _ = world
    draw = np.random.default_rng(0)
    disk = small_disk("size=4m")
    full = 0
    for _ in range(TRIALS):
        folder = disk / "run"
        folder.mkdir()
        left = int(draw.integers(4, 120)) * 1024
        free = os.statvfs(disk)
        (disk / "filler").write_bytes(bytes(max(0, free.f_bavail * free.f_bsize - left)))
        error = error_of(cfg, folder)
        assert error is None or error.strerror == "No space left on device"
        full += error is not None
        (disk / "filler").unlink()
        train(cfg, folder)
        assert_same_files(reference, folder)
        shutil.rmtree(folder)
    assert 0 < full < TRIALS


@pytest.mark.parametrize("key", ["output_dir", "cache_dir"])
def test_a_read_only_folder_is_one_line(key, small_disk, tmp_path):
    corpus = write_corpus(tmp_path / "corpus")
    disk = small_disk("ro")
    refused = ended(command(corpus, f"{key}={disk / 'here'}"), tmp_path)
    assert refused.returncode == 1
    assert refused.stderr.count("\n") == 1
    assert str(disk) in refused.stderr
    assert "Read-only file system" in refused.stderr


def test_two_sweeps_on_one_folder_at_once_share_the_work_or_say_so(tmp_path):
    corpus = write_corpus(tmp_path / "corpus")
    both = [started(sweep(corpus, "seed=range(4)"), tmp_path) for _ in range(2)]
    for process in both:
        _, err = process.communicate(timeout=HANG)
        assert process.returncode in (0, 1)
        assert "Traceback" not in err
        assert (process.returncode == 1) == ("another process is running" in err)
    for folder in (tmp_path, tmp_path / "alone"):
        one_after_another(corpus, folder, "seed=range(4)")
    assert_same_results(tmp_path / "alone", tmp_path, 4)


JUMPS = """
import random, time
real, draw = time.time, random.Random(0)
time.time = lambda: real() + draw.choice([-1, 1]) * draw.random() * 10**8
"""


def test_a_clock_that_jumps_changes_nothing(world, tmp_path):
    """The clock jumps by years at every call. Numbers and failure messages stay the same."""
    corpus = write_corpus(tmp_path / "corpus")
    (tmp_path / "sitecustomize.py").write_text(JUMPS)
    environment = importing(tmp_path)
    argv = sweep(corpus, "seed=0,1")
    for _ in range(3):
        for folder in (tmp_path / "multirun").rglob("seed=1"):
            shutil.rmtree(folder)
        succeeded(argv, tmp_path, environment)
        (run,) = (tmp_path / "multirun").rglob("seed=0")
        assert_same_files(world[1], run)
    argv = sweep(corpus, "seed=0,1", "optim.lr=1e30", "sweep_id=diverging")
    failing = ended(argv, tmp_path, environment)
    assert failing.returncode == 1
    assert failing.stderr.count("diverged at step") == 2  # as it happens, and in the end
    assert failing.stderr.count("  posfuse train ") == 2  # for each seed
