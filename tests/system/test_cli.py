"""The commands as a user sees them: a sweep and its report, texts of one name, a full disk."""

import json
import os
import re
import subprocess
import sys

import pytest

from processes import assert_one_line
from small_runs import replaced, small_overrides, write_corpus


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("cli") / "corpus")


@pytest.fixture
def small(corpus):
    """The overrides of a run of one epoch."""
    return small_overrides(corpus, "trainer.max_epochs=1")


@pytest.mark.smoke
def test_a_sweep_is_reported_and_the_same_call_skips_what_is_done(small, tmp_path):
    """Each command in a process of its own."""
    train = [sys.executable, "-m", "posfuse", "train", "-m", *small, "sweep_id=first"]
    train += ["fusion=add,concat", "seed=0,1"]
    report = [sys.executable, "-m", "posfuse", "report", "multirun/first"]

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
    assert "already done" not in first.stdout

    written = [path.stat().st_mtime_ns for path in results]
    second = call(train)
    assert second.returncode == 0, second.stderr
    assert second.stdout.count("already done") == 4
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


def test_two_corpora_of_one_name_need_another_name(run, small, tmp_path):
    one, other = (write_corpus(tmp_path / name, seed=n) for n, name in enumerate(("a", "b")))
    assert run("posfuse", "train", *replaced([*small, f"data.path={one}"])).code == 0
    theirs = replaced([*small, f"data.path={other}"])
    result = run("posfuse", "train", *theirs)
    message = "result.json: holds the result of other texts that are also named 'tiny'; set "
    assert_one_line(
        result, message + "data.name=NAME for these texts, or remove that file to run again"
    )
    assert run("posfuse", "train", *replaced([*theirs, "data.name=other"])).code == 0


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
    wide = replaced([*small, "model.d_model=64", f"output_dir={full_disk / 'runs'}"])  # above 24 kB
    filler = full_disk / "filler"
    filler.write_bytes(bytes(100_000))
    free = os.statvfs(full_disk)
    with filler.open("ab") as file:
        file.write(bytes(free.f_bavail * free.f_bsize - left))
    result = run("posfuse", "train", *wide)
    assert_one_line(result)
    assert not list(full_disk.rglob("result.json"))
    assert "finished runs are skipped" in result.err
    filler.unlink()
    subprocess.run(["mount", "-o", "remount,size=8m", str(full_disk)], check=True)
    assert run("posfuse", "train", *wide).code == 0


COMPLETE = """
eval "$({posfuse} --completion bash)"
COMP_WORDS=({line}) COMP_LINE="{line}" COMP_CWORD={word}
_posfuse 2> errors
echo "${{COMPREPLY[*]}}"
"""


@pytest.mark.smoke
@pytest.mark.parametrize(
    ("line", "word", "expected"),
    [
        ("posfuse st", 1, "status study"),
        ("posfuse study fr", 2, "freeze"),
        ("posfuse train seed=0 model=pap", 3, "model=paper model=paper_long"),
        ("posfuse train -m model.d_", 3, "model.d_ff= model.d_model="),
    ],
)
def test_bash_completes_commands_and_overrides(line, word, expected, tmp_path):
    (tmp_path / "posfuse").write_text(f'#!/bin/sh\nexec {sys.executable} -m posfuse "$@"\n')
    (tmp_path / "posfuse").chmod(0o755)
    script = COMPLETE.format(posfuse=tmp_path / "posfuse", line=line, word=word)
    script = f'PATH="{tmp_path}:$PATH"\n{script}'
    done = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert " ".join(sorted(done.stdout.split())) == expected
