"""The precision that trainer.precision=fastest stands for on this machine.

On a CPU it is measured: by their names alone, processors with and without bfloat16 units cannot be
told apart. The first process to ask measures, in a process of its own, and keeps the answer in the
cache folder, where all further processes on such a machine find it.
"""

import hashlib
import json
import logging
import os
import platform
import subprocess
import sys
import time
from functools import cache
from importlib.metadata import version
from pathlib import Path

from filelock import FileLock

from posfuse.errors import InputError
from posfuse.records import write_json

FASTEST, FLOAT32, BFLOAT16 = "fastest", "32-true", "bf16-mixed"
FASTER = 1.2  # bfloat16 products must be so many times as fast: a step also converts and rounds
TOKENS, D_MODEL, D_FF, ROUNDS = 2048, 256, 1024, 7  # of the products that are measured
# What /proc/cpuinfo says of a processor that is the same on every one of its kind.
OF_KIND = (
    "vendor_id", "cpu family", "model", "model name", "stepping", "flags", "CPU implementer",
    "CPU architecture", "CPU variant", "CPU part", "Features",
)  # fmt: skip

log = logging.getLogger(__name__)


def fastest(accelerator: str, cache_dir: str) -> str:
    """ "bf16-mixed" where bfloat16 products are clearly faster than those of float32, else
    "32-true"; the same on each call. One line in the log gives the reason."""
    import torch  # takes seconds to import, and few runs ask

    device = None if accelerator == "cpu" else torch.accelerator.current_accelerator()
    if device is None or device.type == "cpu":
        ratio = _kept_ratio(Path(cache_dir))
        is_faster = ratio >= FASTER
        how = "faster" if is_faster else "slower" if ratio < 1 else "hardly faster"
        reason = f"bfloat16 products are {how} on this CPU ({ratio:.1f}x)"
    else:
        is_faster = device.type == "cuda" and torch.cuda.is_bf16_supported(
            including_emulation=False
        )
        reason = f"this GPU has {'' if is_faster else 'no '}bfloat16 units"
    log.info("speed=fast: %s, because %s", "bfloat16" if is_faster else "float32", reason)
    return BFLOAT16 if is_faster else FLOAT32


def _kept_ratio(cache_dir: Path) -> float:
    """The machine's ratio from the cache, measured if it is not there."""
    kind = machine()
    name = hashlib.sha256(json.dumps(kind, sort_keys=True).encode()).hexdigest()[:16]
    path = cache_dir / "precision" / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_suffix(".lock")):
        if not path.exists():
            write_json(path, {**kind, "ratio": _measured_apart()})
        try:
            return float(json.loads(path.read_text())["ratio"])
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(f"{path}: damaged; remove it, and it is measured again") from error


@cache  # a run may set the variable, so that further runs of the process would ask again
def machine() -> dict[str, str]:
    """What decides the ratio: the processor, torch, and what oneDNN may use of the processor."""
    found = {"machine": platform.machine(), "torch": version("torch")}
    found["isa"] = os.environ.get("ONEDNN_MAX_CPU_ISA", "")
    described = Path("/proc/cpuinfo")
    if not described.exists():
        return {**found, "model name": platform.processor()}
    first = described.read_text().split("\n\n")[0]
    lines = (line.partition(":") for line in first.splitlines())
    return found | {k.strip(): v.strip() for k, _, v in lines if k.strip() in OF_KIND}


def _measured_apart() -> float:
    """`measured` in a process of its own: it takes one thread, and oneDNN's settings are final
    from a process's first product on."""
    done = subprocess.run(
        [sys.executable, "-m", "posfuse.precision"],
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
            f"trainer.precision=fastest: bfloat16 could not be measured ({last}); give "
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
    from posfuse.environment import do_without_broken_amx

    do_without_broken_amx()
    print(measured())
