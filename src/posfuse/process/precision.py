"""The precision that trainer.precision=fastest stands for.

On a CPU it is measured: processors of one name differ in whether their bfloat16 units work. The
first run of a sweep measures, in a process of its own, and writes the result into the sweep's
folder. All runs of a sweep then have the same precision, also when they resume on another machine.
"""

import json
import logging
import math
import os
import subprocess
import sys
import time
from functools import cache
from pathlib import Path

from filelock import FileLock

from posfuse.errors import InputError
from posfuse.runs.records import write_json

FASTEST, FLOAT32, BFLOAT16 = "fastest", "32-true", "bf16-mixed"
FASTER = 1.2  # bfloat16 products must be so many times as fast: a step also converts and rounds
SMALLEST = 128  # features of a model whose step gains from them (docs/performance.md)
TOKENS, D_MODEL, D_FF, ROUNDS = 2048, 256, 1024, 7  # of the products that are measured
RATIO = ".bfloat16.json"  # in the sweep's folder

_log_once = cache(logging.getLogger(__name__).info)  # a process has many runs of a sweep


def fastest(accelerator: str, d_model: int, sweep: Path) -> str:
    """ "bf16-mixed" where bfloat16 is clearly faster than float32 for models of `d_model` features,
    else "32-true"; the same on each call for a sweep's folder. The log gives the reason."""
    import torch  # takes seconds to import, and few runs ask

    device = None if accelerator == "cpu" else torch.accelerator.current_accelerator()
    if device is not None and device.type != "cpu":
        is_faster = device.type == "cuda" and torch.cuda.is_bf16_supported(
            including_emulation=False
        )
        reason = f"this GPU has {'' if is_faster else 'no '}bfloat16 units"
    elif d_model < SMALLEST:
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
    """The ratio in the sweep's folder, measured if it is not there."""
    path = sweep / RATIO
    sweep.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_suffix(".lock")):
        if not path.exists():
            write_json(path, {"ratio": _measured_apart()})
        try:
            ratio = float(json.loads(path.read_text())["ratio"])
        except (ValueError, KeyError, TypeError):
            ratio = math.nan
    if not 0 < ratio < math.inf:
        raise InputError(f"{path}: damaged; remove it, and the next run measures again")
    return ratio


def _measured_apart() -> float:
    """`measured` in a process of its own: it takes one thread, and oneDNN's settings are final
    from a process's first product on."""
    done = subprocess.run(
        [sys.executable, "-m", "posfuse.process.precision"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        start_new_session=True,  # Ctrl-C ends this process, which ends that one
        capture_output=True,
        text=True,
        check=False,
    )
    try:
        return float(done.stdout)
    except ValueError as error:
        last = (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1]
        raise InputError(
            f"trainer.precision={FASTEST}: bfloat16 could not be measured ({last}); give "
            f"trainer.precision={FLOAT32}"
        ) from error


def measured() -> float:
    """How many times as fast a product in bfloat16 is as in float32, by one thread. The two
    alternate, and the best time of each counts: other work on the machine only adds time."""
    import torch

    torch.set_num_threads(1)
    tokens, weight = torch.randn(TOKENS, D_MODEL), torch.randn(D_MODEL, D_FF)
    best = {torch.float32: float("inf"), torch.bfloat16: float("inf")}
    for turn in range(ROUNDS + 1):
        for kind in best:
            x, w = tokens.to(kind), weight.to(kind)
            start = time.perf_counter()
            x @ w
            if turn:  # the first product of a kind prepares the further ones
                best[kind] = min(best[kind], time.perf_counter() - start)
    return best[torch.float32] / best[torch.bfloat16]


if __name__ == "__main__":
    from posfuse.process.environment import do_without_broken_amx

    do_without_broken_amx()
    print(measured())
