"""trainer.precision=fastest: which precision is chosen for it, and that a sweep has only one."""

import os
import platform
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from omegaconf import OmegaConf

from posfuse.errors import InputError
from posfuse.process import precision
from posfuse.process.precision import Shape, fastest
from posfuse.runs import identity, records
from posfuse.runs.checks import checked
from posfuse.sweeps.skipping import finished
from posfuse.train import train
from processes import succeeded
from small_runs import composed, hydra_composed, small_config, small_overrides

MEASURE = "from posfuse.process import precision; print(precision.speedup(precision.Shape()))"


def measuring(monkeypatch, *ratios):
    """The measurement gives these numbers in turn, then none."""
    found = iter(ratios)
    monkeypatch.setattr(precision, "speedup", lambda of: next(found))


@pytest.mark.parametrize(
    ("ratio", "chosen", "line"),
    [
        (0.41, "32-true", "float32, because bfloat16 is slower on this CPU (0.4x)"),
        (1.1, "32-true", "float32, because bfloat16 is hardly faster on this CPU (1.1x)"),
        (2.4, "bf16-mixed", "bfloat16, because bfloat16 is faster on this CPU (2.4x)"),
    ],
)
def test_it_is_bfloat16_only_if_that_is_clearly_faster(
    ratio, chosen, line, corpus, tmp_path, monkeypatch, caplog
):
    caplog.set_level("INFO")
    measuring(monkeypatch, ratio)
    fast = ["speed=fast", "model.d_model=128", f"output_dir={tmp_path}"]
    precision._log_once.cache_clear()
    cfg, again = (small_config(corpus, *fast) for _ in range(2))
    assert cfg.trainer.precision == again.trainer.precision == chosen
    assert caplog.messages == [f"trainer.precision=fastest: {line}"]
    explicit = small_config(corpus, *fast, f"trainer.precision={chosen}")  # not measured
    assert identity.fingerprint(cfg) == identity.fingerprint(explicit)
    assert len(caplog.messages) == 1


def test_a_sweep_is_measured_once(tmp_path, monkeypatch):
    measuring(monkeypatch, 0.5, 3.0)
    assert fastest("cpu", Shape(127), tmp_path / "one") == "32-true"  # too small to measure
    assert [fastest("cpu", Shape(128), tmp_path / "one") for _ in range(3)] == ["32-true"] * 3
    assert fastest("cpu", Shape(128), tmp_path / "other") == "bf16-mixed"
    assert fastest("cpu", Shape(128), tmp_path / "one") == "32-true"


@pytest.mark.parametrize("content", ["", "{", "nan", "0", "32-true", "16-true a reason"])
def test_a_damaged_choice_is_named(content, tmp_path):
    path = tmp_path / f"{precision.CHOICE}-128-8-1024-512"
    path.write_text(content)
    with pytest.raises(InputError, match="damaged; remove it") as caught:
        fastest("cpu", Shape(128), tmp_path)
    assert str(caught.value).startswith(str(path))


def test_concurrent_processes_get_the_same_precision(tmp_path, monkeypatch):
    measuring(monkeypatch, 0.5, *[3.0] * 7)
    with ThreadPoolExecutor(8) as threads:
        asked = [threads.submit(fastest, "cpu", Shape(128), tmp_path) for _ in range(8)]
    assert {one.result() for one in asked} == {"32-true"}


@pytest.mark.parametrize(("has_units", "chosen"), [(True, "bf16-mixed"), (False, "32-true")])
def test_a_gpu_is_not_measured(has_units, chosen, tmp_path, monkeypatch):
    def is_supported(including_emulation=True):
        return has_units or including_emulation

    monkeypatch.setattr(
        torch.accelerator, "current_accelerator", lambda check_available: torch.device("cuda")
    )
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", is_supported)
    measuring(monkeypatch, 0.5)
    assert fastest("auto", Shape(64), tmp_path) == chosen
    assert fastest("cpu", Shape(128), tmp_path) == "32-true"
    # The same on another machine.
    has_units = not has_units
    assert fastest("auto", Shape(64), tmp_path) == chosen
    assert fastest("cpu", Shape(64), tmp_path) == chosen
    assert fastest("auto", Shape(128), tmp_path) == "32-true"


def test_the_record_states_the_precision_and_a_finished_run_keeps_it(corpus, tmp_path):
    fast = ["speed=fast", "model.d_model=128", f"output_dir={tmp_path}", "trainer.max_epochs=1"]
    cfg = small_config(corpus, *fast)
    record = train(cfg, tmp_path / "run")
    assert record["settings"]["trainer.precision"] == cfg.trainer.precision
    assert cfg.trainer.precision in ("32-true", "bf16-mixed")
    written = OmegaConf.load(tmp_path / "run" / "config.yaml")
    assert written.trainer.precision == cfg.trainer.precision
    assert train(small_config(corpus, *fast), tmp_path / "run") == record


def test_the_check_of_finished_runs_neither_measures_nor_logs(
    corpus, tmp_path, monkeypatch, caplog
):
    caplog.set_level("INFO")
    measuring(monkeypatch, 2.4)
    precision._log_once.cache_clear()
    fast = ["speed=fast", "model.d_model=128", f"output_dir={tmp_path}"]
    given, asked = [*small_overrides(corpus), *fast], []
    monkeypatch.setattr(records, "finished_record", lambda folder, cfg: asked.append(cfg))
    assert finished(hydra_composed(*given, hydra_too=True), tmp_path, []) is None
    assert not asked
    assert not list(tmp_path.iterdir())
    chosen = precision.precision_of(checked(composed(*given)))
    lines = caplog.messages
    precision._log_once.cache_clear()
    finished(hydra_composed(*given, hydra_too=True), tmp_path, [])
    assert [cfg.trainer.precision for cfg in asked] == [chosen] == ["bf16-mixed"]
    assert caplog.messages == lines


@pytest.mark.slow  # products in bfloat16 without such units
@pytest.mark.skipif(platform.machine() != "x86_64", reason="oneDNN's name for x86")
def test_without_bfloat16_units_float32_is_chosen(tmp_path):
    """oneDNN without such units; it reads the variable once per process."""
    env = {**os.environ, "ONEDNN_MAX_CPU_ISA": "AVX512_CORE"}
    done = succeeded([sys.executable, "-c", MEASURE], tmp_path, env)
    assert 0 < float(done.stdout) < precision.FASTER
