"""A process: broken matrix units, its commit, and numbers below the normal ones."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from posfuse.process import commit, environment
from processes import importing, succeeded
from small_runs import write_corpus

MAX_ISA = "ONEDNN_MAX_CPU_ISA"


@pytest.mark.smoke
@pytest.mark.parametrize(
    ("flags", "product", "is_broken"),
    [
        ("avx512f amx_bf16", "import os; os.kill(os.getpid(), 4)", True),
        ("avx512f amx_bf16", "pass", False),
        ("avx512f amx_bf16", "raise SystemExit(1)", False),
        ("avx512f amx_bf16", "import os; os.kill(os.getpid(), 9)", False),
        ("avx512f", "import os; os.kill(os.getpid(), 4)", False),
        (None, "import os; os.kill(os.getpid(), 4)", False),
    ],
    ids=["illegal", "works", "fails", "killed", "no AMX", "no cpuinfo"],
)
def test_matrix_units_are_disabled_if_a_product_is_illegal(
    flags, product, is_broken, tmp_path, monkeypatch
):
    monkeypatch.setattr(environment, "CPU_INFO", tmp_path / "cpuinfo")
    if flags:
        (tmp_path / "cpuinfo").write_text(f"model name: any\nflags: fpu {flags}\n")
    monkeypatch.setattr(environment, "PRODUCT", product)
    monkeypatch.setenv(MAX_ISA, "ALL")
    assert environment.do_without_broken_amx.__wrapped__() is is_broken
    assert os.environ[MAX_ISA] == ("AVX10_1_512" if is_broken else "ALL")


@pytest.mark.smoke
@pytest.mark.skipif(not shutil.which("git"), reason="needs git")
def test_a_record_names_the_commit_of_the_checkout(tmp_path, monkeypatch):
    def git(*arguments):
        who = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
        command = ["git", "-C", str(tmp_path), *who, *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)  # a hook of git sets them
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)  # may sign commits or have hooks
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    package = tmp_path / "src" / "posfuse"
    monkeypatch.setattr(commit, "PACKAGE", package)
    current = commit.commit.__wrapped__  # a process asks once
    assert current() is None
    package.mkdir(parents=True)
    (package / commit.BAKED).write_text("of the build\n")
    assert current() == "of the build"
    (package / commit.BAKED).unlink()
    git("init", "--quiet")
    assert current() is None
    git("commit", "--quiet", "--allow-empty", "--message", "first")
    head = git("rev-parse", "HEAD")
    assert current() == head
    (tmp_path / "new").touch()
    assert current() == f"{head}+changes"
    monkeypatch.setenv("PATH", str(tmp_path))
    assert current() is None


PROGRAM = """
import os, sys
os.environ.pop("ONEDNN_MAX_CPU_ISA", None)
from pathlib import Path
from small_runs import small_config
from posfuse.process import environment
environment.do_without_broken_amx()
import torch
from posfuse.train import train

def tiny():
    return float((torch.full((2**20,), 1e-30) * 1e-10).sum())

costs = environment.costs
environment.costs = lambda *given: (print("during the run", tiny()), costs(*given))[1]
train(small_config(Path(sys.argv[1]), "trainer.threads=2"), Path("run").absolute())
print("after it", tiny() > 0)
square = torch.ones(64, 64, dtype=torch.bfloat16)
print("product", (square @ square)[0, 0].item())
"""


def test_denormals_are_flushed_during_a_run_and_bfloat16_works(tmp_path):
    """In a new process without earlier work, since threads keep the setting that they started
    with."""
    corpus = write_corpus(tmp_path / "corpus")
    own = importing(Path(__file__).parents[1])
    done = succeeded([sys.executable, "-c", PROGRAM, str(corpus)], tmp_path, own)
    for line in ("product 64.0\n", "during the run 0.0\n", "after it True\n"):
        assert line in done.stdout


def test_denormals_stay_flushed_after_a_part_that_flushes_them():
    def is_flushed():
        return not (torch.tensor(1e-38) * 0.1).item()

    torch.set_flush_denormal(False)  # whatever an earlier test of this process has left
    assert not is_flushed()
    with environment.flushing_denormals():
        with environment.flushing_denormals():
            assert is_flushed()
        assert is_flushed()
    assert not is_flushed()
