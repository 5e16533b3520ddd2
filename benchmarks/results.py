"""Write a benchmark's results: its tables, the command, the versions and the machine.

`python benchmarks/performance.py` copies them into docs/performance.md.
"""

import json
import os
import platform
import shlex
import statistics
import sys
import time
from collections.abc import Iterable
from datetime import date
from pathlib import Path
from typing import Any

import torch

from posfuse.process.environment import commit

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
SIDE, PRODUCTS = 2048, 9  # side and number of the products that measure the machine's rate
Table = dict[str, Any]


def table(title: str, columns: list[str], rows: Iterable[list[str | float]], note: str) -> Table:
    """A table of a results file; `note` explains it to the reader."""
    return {"title": title, "columns": columns, "rows": list(rows), "note": note}


def write(path: Path, tables: list[Table], raw: dict[str, Any]) -> None:
    """Write {command, commit, date, machine, tables, raw} to `path`, a JSON file."""
    content = {
        "command": command(sys.argv),
        "commit": commit(),
        "date": date.today().isoformat(),
        "machine": machine(),
        "tables": tables,
        "raw": raw,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1) + "\n")


def command(argv: list[str]) -> str:
    """The script's command line, with folders of this machine replaced by FOLDER."""
    words = [f"benchmarks/{Path(argv[0]).name}"]
    for argument in argv[1:]:
        path = Path(argument)
        words.append((path.name if path.suffix else "FOLDER") if path.is_absolute() else argument)
    return f"python {shlex.join(words)}"


def machine() -> dict[str, Any]:
    return {
        "cpu": _cpu(),
        "cores": len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count(),
        "threads": torch.get_num_threads(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "torch": torch.__version__,
        "python": platform.python_version(),
    }


def _cpu() -> str:
    described = Path("/proc/cpuinfo")
    if described.exists():
        for line in described.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def product_rate(kind: torch.dtype, device: torch.device) -> float:
    """FLOP/s of a product of 2048 x 2048 matrices of this type, with the current threads."""
    left, right = torch.randn(2, SIDE, SIDE, device=device).to(kind)
    seconds = []
    for _ in range(PRODUCTS + 2):
        start = now(device)
        left @ right
        seconds.append(now(device) - start)
    return 2 * SIDE**3 / statistics.median(seconds[2:])  # the first ones start the threads


def now(device: torch.device) -> float:
    """Seconds of a clock, read after the device has finished its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()
