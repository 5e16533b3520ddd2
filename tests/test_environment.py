"""What a process asks of the machine ahead of its work."""

import os
import signal
import subprocess
import sys

import pytest

from posfuse import environment


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


@pytest.mark.parametrize("case", ["told by the user", "no such units"])
def test_nothing_is_tried_where_nothing_is_to_be_found(case, announced, monkeypatch):
    monkeypatch.setattr(environment, "_multiply_bfloat16", die)
    if case == "no such units":
        monkeypatch.setattr(environment, "_cpu_flags", lambda: {"avx512f"})
    else:
        monkeypatch.setenv(environment.MAX_ISA, "AVX2")
    assert not announced()
    assert os.environ.get(environment.MAX_ISA) == (None if case == "no such units" else "AVX2")


def test_bfloat16_products_work_on_this_machine():
    alone = {k: v for k, v in os.environ.items() if k != environment.MAX_ISA}
    program = "from posfuse import environment as e; e.do_without_broken_amx(); import torch; "
    program += "x = torch.ones(64, 64, dtype=torch.bfloat16); print((x @ x)[0, 0].item())"
    done = subprocess.run(
        [sys.executable, "-c", program], env=alone, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "64.0\n"), done.stderr
