"""Write a benchmark's results: its tables, the command, the versions, the machine, and the digest
of the code that was measured.

The file is benchmarks/results/MACHINE/NAME.json. `python benchmarks/performance.py` makes the pages
of docs from all of them.
"""

import argparse
import json
import os
import platform
import re
import shlex
import sys
import time
from collections.abc import Iterable
from datetime import date
from pathlib import Path
from typing import Any

import torch

import measured_code
from posfuse.process.environment import CPU_INFO, commit, do_without_broken_amx

RESULTS = Path(__file__).resolve().parent / "results"
STARTED = time.perf_counter()
CODE = ("src", "conf", "benchmarks", ":!benchmarks/results")  # changes of which a result names
ISA = "ONEDNN_MAX_CPU_ISA"  # do_without_broken_amx sets it
Table = dict[str, Any]


def table(title: str, columns: list[str], rows: Iterable[list[str | float]], note: str) -> Table:
    """A table of a results file; `note` explains it to the reader."""
    return {"title": title, "columns": columns, "rows": list(rows), "note": note}


def parser(script: str, doc: str | None) -> argparse.ArgumentParser:
    """A benchmark's options: --out, and those that the benchmark adds. The commit and the digest of
    the code are those of the start."""
    options = argparse.ArgumentParser(description=(doc or "").splitlines()[0])
    where = "the results, a JSON file (default: benchmarks/results/MACHINE/NAME.json)"
    options.add_argument("--out", type=Path, help=where)
    code = measured_code.digest(Path(script), measured_code.installed_torch())
    options.set_defaults(name=Path(script).stem, code=code, commit=commit(*CODE))
    return options


def folder(text: str) -> Path:
    """The type of an option that takes a corpus's folder."""
    path = Path(text)
    if not path.is_dir():
        raise argparse.ArgumentTypeError(f"{text} is no folder; give one with train and test")
    return path.absolute()


def write(
    arguments: argparse.Namespace,
    tables: list[Table],
    raw: dict[str, Any],
    folders: Iterable[str] = (),
) -> None:
    """Write a benchmark's results; `arguments` are those of `parser`, `folders` names the corpora
    that were given. An interruption leaves the previous file as it was."""
    content = {
        "command": command(sys.argv),
        "commit": arguments.commit,
        "date": date.today().isoformat(),
        "machine": machine(),
        "code": arguments.code,
        "folders": sorted(folders),
        "seconds": round(time.perf_counter() - STARTED),
        "tables": tables,
        "raw": raw,
    }
    path = arguments.out or default_path(arguments.name)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    partial.replace(path)


def default_path(name: str) -> Path:
    """The results file of a benchmark on this machine."""
    return RESULTS / slug(machine()) / f"{name}.json"


def slug(machine: dict[str, Any]) -> str:
    """The GPU, the CPU, its bfloat16 units and its cores in a folder's name:
    amd-epyc-no-bf16-2-cores. Virtual machines of different sizes name the same CPU."""
    name = f"{machine['gpu'] or ''} {machine['cpu']} {machine['bf16']} {machine['cores']} cores"
    name = re.sub(r"\(r\)|\(tm\)|\bcpu\b|@ [\d.]+ghz", " ", name.lower())
    return re.sub(r"[^a-z0-9]+", "-", name).strip("-")


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
        "bf16": bfloat16_units(),
        "cores": len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count(),
        "threads": torch.get_num_threads(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "torch": torch.__version__,
        "python": platform.python_version(),
    }


def bfloat16_units() -> str:
    """amx, broken-amx, avx512_bf16 or no-bf16. Virtual Xeons have one name with any of these, but
    not one speed."""
    flags = CPU_INFO.read_text(encoding="utf-8") if CPU_INFO.exists() else ""
    if "amx_bf16" not in flags:
        return "avx512_bf16" if "avx512_bf16" in flags else "no-bf16"
    isa = os.environ.get(ISA)
    is_broken = do_without_broken_amx()
    if isa is None:
        os.environ.pop(ISA, None)  # the benchmarks that run.py starts look for themselves
    return "broken-amx" if is_broken else "amx"


def _cpu() -> str:
    if CPU_INFO.exists():
        for line in CPU_INFO.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()
