"""What a process asks of the machine ahead of its work."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from posfuse.process import environment
from small_runs import write_corpus


@pytest.fixture
def announced(monkeypatch):
    """A machine whose kernel tells of AMX, and a process that has not looked at it."""
    monkeypatch.setattr(environment, "_cpu_flags", lambda: {"avx512f", "amx_bf16"})
    monkeypatch.setenv(environment.MAX_ISA, "")  # to be put back
    monkeypatch.delenv(environment.MAX_ISA)
    look = environment.do_without_broken_amx
    look.cache_clear()
    yield look
    look.cache_clear()


def die():
    os.kill(os.getpid(), signal.SIGILL)


def test_matrix_units_that_end_a_process_are_done_without(announced, monkeypatch):
    monkeypatch.setattr(environment, "_multiply_bfloat16", die)
    assert announced()
    assert os.environ[environment.MAX_ISA] == "AVX10_1_512"


@pytest.mark.parametrize("product", [lambda: None, lambda: 1 / 0])
def test_matrix_units_that_work_are_left_as_they_are(product, announced, monkeypatch):
    monkeypatch.setattr(environment, "_multiply_bfloat16", product)
    assert not announced()
    assert environment.MAX_ISA not in os.environ


def test_units_that_the_kernel_does_not_tell_of_are_not_tried(announced, monkeypatch):
    monkeypatch.setattr(environment, "_multiply_bfloat16", die)
    monkeypatch.setattr(environment, "_cpu_flags", lambda: {"avx512f"})
    assert not announced()


def test_a_product_that_is_killed_tells_nothing(announced, monkeypatch):
    monkeypatch.setattr(environment, "_multiply_bfloat16", lambda: os.kill(os.getpid(), 9))
    assert not announced()


def test_a_process_that_cannot_be_had_tells_nothing(announced, monkeypatch):
    monkeypatch.setattr(os, "fork", lambda: (_ for _ in ()).throw(BlockingIOError()))
    assert not announced()


def test_a_process_whose_end_nobody_is_told_of_tells_nothing(announced, monkeypatch):
    monkeypatch.setattr(environment, "_multiply_bfloat16", die)
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        assert not announced()
    finally:
        signal.signal(signal.SIGCHLD, before)


@pytest.mark.parametrize("threads", [1, 2])
def test_numbers_below_the_normal_ones_are_nothing_in_a_run(threads, tmp_path):
    corpus = write_corpus(tmp_path / "corpus")
    program = "import torch\nfrom pathlib import Path\nfrom small_runs import small_config\n"
    program += "from posfuse.train import train\n"
    program += f"cfg = small_config(Path({str(corpus)!r}), 'trainer.threads={threads}')\n"
    program += "from posfuse.process import environment as e\n"
    program += "small = lambda: float((torch.full((2**20,), 1e-30) * 1e-10).sum())\n"
    program += "facts = e.facts\n"
    program += "e.facts = lambda *a: (print('in it', small()), facts(*a))[1]\n"
    program += "train(cfg, Path('run').absolute())\n"
    program += "print('behind it', small() > 0)\n"
    paths = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env={**os.environ, "PYTHONPATH": paths},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "in it 0.0\n" in done.stdout, done.stderr
    assert "behind it True\n" in done.stdout


def test_bfloat16_products_work_on_this_machine():
    alone = {k: v for k, v in os.environ.items() if k != environment.MAX_ISA}
    program = (
        "from posfuse.process import environment as e; e.do_without_broken_amx(); import torch; "
    )
    program += "x = torch.ones(64, 64, dtype=torch.bfloat16); print((x @ x)[0, 0].item())"
    done = subprocess.run(
        [sys.executable, "-c", program], env=alone, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "64.0\n"), done.stderr
