"""Chooses the precision for trainer.precision=fastest.

On a CPU it is measured, since the bfloat16 units of the same model of CPU may or may not work.
The first run of a sweep measures and writes the result into the sweep's folder. All runs of a
sweep then have the same precision, also when they resume on another machine.
"""

import logging
import math
import time
from functools import cache
from pathlib import Path

import torch
from filelock import FileLock

from posfuse.config import Config
from posfuse.errors import InputError
from posfuse.process import environment

FASTEST, FLOAT32, BFLOAT16 = "fastest", "32-true", "bf16-mixed"
FASTER = 1.2  # required speed-up of bfloat16 products: a step also converts and rounds
SMALLEST = 128  # features of a model whose steps become faster
TOKENS, D_MODEL, D_FF, ROUNDS = 2048, 256, 1024, 7  # of the products that are measured
RATIO = ".bfloat16"  # in the sweep's folder

_log_once = cache(logging.getLogger(__name__).info)  # a process has many runs of a sweep


def chosen(cfg: Config) -> str:
    """The precision of a run: the config's own, or the one chosen for fastest."""
    if cfg.trainer.precision != FASTEST:
        return cfg.trainer.precision
    sweep = Path(cfg.output_dir, cfg.sweep_id)
    return fastest(cfg.trainer.accelerator, cfg.model.d_model, sweep)


def fastest(accelerator: str, d_model: int | None, sweep: Path) -> str:
    """ "bf16-mixed" if bfloat16 is clearly faster than float32 for models of `d_model` features
    (None: SMALLEST or more), else "32-true"; the same on each call for a sweep's folder. The log
    gives the reason."""
    device = None if accelerator == "cpu" else torch.accelerator.current_accelerator()
    if device is not None and device.type != "cpu":
        is_faster = device.type == "cuda" and torch.cuda.is_bf16_supported(
            including_emulation=False
        )
        reason = f"this GPU has {'' if is_faster else 'no '}bfloat16 units"
    elif d_model is not None and d_model < SMALLEST:
        is_faster = False
        reason = f"a model of {d_model} features is too small to gain from bfloat16"
    else:
        ratio = _ratio(sweep)
        is_faster = ratio >= FASTER
        how = "faster" if is_faster else "slower" if ratio < 1 else "hardly faster"
        reason = f"bfloat16 products are {how} on this CPU ({ratio:.1f}x)"
    name = "bfloat16" if is_faster else "float32"
    _log_once("trainer.precision=%s: %s, because %s", FASTEST, name, reason)
    return BFLOAT16 if is_faster else FLOAT32


def _ratio(sweep: Path) -> float:
    """The ratio in the sweep's folder, measured if the file is missing."""
    path = sweep / RATIO
    sweep.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_suffix(".lock")):
        if not path.exists():
            path.write_text(f"{measured()}\n")
        try:
            ratio = float(path.read_text())
        except ValueError:
            ratio = math.nan
    if not 0 < ratio < math.inf:
        raise InputError(f"{path}: damaged; remove it, and the next run measures again")
    return ratio


def measured() -> float:
    """How many times as fast as in float32 a product is in bfloat16, with one thread.

    The two alternate, and the best time of each counts: other work on the machine only adds time.
    """
    environment.do_without_broken_amx()  # must precede the first product of a process
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    tokens, weight = torch.randn(TOKENS, D_MODEL), torch.randn(D_MODEL, D_FF)
    best = {torch.float32: math.inf, torch.bfloat16: math.inf}
    for turn in range(ROUNDS + 1):
        for kind in best:
            x, w = tokens.to(kind), weight.to(kind)
            start = time.perf_counter()
            x @ w
            if turn:  # the first product of a kind prepares the later ones
                best[kind] = min(best[kind], time.perf_counter() - start)
    torch.set_num_threads(threads)
    return best[torch.float32] / best[torch.bfloat16]
