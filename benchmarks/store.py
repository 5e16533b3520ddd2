"""Store the result of a benchmark.

A result is the file benchmarks/results/MACHINE/NAME.json: tables, command, versions, machine, and
the digest of the code that was measured. performance.py makes a page of all results.
"""

import argparse
import json
import os
import platform
import re
import shlex
import sys
import time
from collections.abc import Callable, Iterable
from datetime import date
from pathlib import Path
from typing import Any

import torch

import measured_code
from posfuse.process.environment import CPU_INFO, commit, do_without_broken_amx

SCRIPTS = Path(__file__).resolve().parent
RESULTS = SCRIPTS / "results"
CODE = ("src", "conf", "benchmarks", ":!benchmarks/results")  # changes of which a result names
Row = list[Any]  # of text and numbers
Table = dict[str, Any]


def table(title: str, columns: list[str], rows: Iterable[Row], note: str) -> Table:
    """A table of a result; `note` explains it to the reader."""
    return {"title": title, "columns": columns, "rows": list(rows), "note": note}


def main(script: str, measure: Callable[[argparse.Namespace], list[Table]], **options: Any) -> None:
    """A benchmark's command: write the tables that `measure` returns.

    Each option has the default and the type given here; a list takes several values. The script's
    FOLDERS become options too. Commit and digest are those of the start.
    """
    start, path = time.perf_counter(), Path(script)
    parser = argparse.ArgumentParser(
        description=measured_code.docstring(path).splitlines()[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--out", type=Path, help="the result (else benchmarks/results/MACHINE)")
    corpora = measured_code.folders(path)
    for name in corpora:
        parser.add_argument(f"--{name}", type=folder, help="a folder")
    for name, default in options.items():
        several = isinstance(default, list)
        kind = type((default or [""])[0]) if several else type(default)
        parser.add_argument(
            f"--{name.replace('_', '-')}", type=kind, default=default, help=" ",
            nargs="+" if several else None,
        )  # fmt: skip
    arguments = parser.parse_args()
    content = {
        "command": command(sys.argv),
        "commit": commit(*CODE),
        "date": date.today().isoformat(),
        "machine": machine(),
        "code": measured_code.digest(path, measured_code.installed_torch()),
        "folders": sorted(name for name in corpora if getattr(arguments, name)),
    }
    content["tables"] = measure(arguments)
    content["machine"]["threads"] = torch.get_num_threads()  # which the benchmark may have set
    content["seconds"] = round(time.perf_counter() - start)
    out = arguments.out or default_path(path.stem)
    out.parent.mkdir(parents=True, exist_ok=True)
    partial = out.with_suffix(".partial")
    partial.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    partial.replace(out)


def folder(text: str) -> Path:
    """The type of an option that takes a folder."""
    path = Path(text)
    if not path.is_dir():
        raise argparse.ArgumentTypeError(f"{text} is no folder; correct it")
    return path.absolute()


def default_path(name: str) -> Path:
    """The result of a benchmark on this machine."""
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
    info = CPU_INFO.read_text(encoding="utf-8") if CPU_INFO.exists() else ""
    named = re.search(r"^model name\s*:\s*(.+)$", info, re.MULTILINE)
    return {
        "cpu": named[1].strip() if named else platform.processor() or platform.machine(),
        "bf16": bfloat16_units(info),
        "cores": len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count(),
        "threads": torch.get_num_threads(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "torch": torch.__version__,
        "python": platform.python_version(),
    }


def bfloat16_units(flags: str) -> str:
    """A key of performance.UNITS; virtual Xeons have one name with any of these. AMX that does not
    work is then out of use, here and, by the variable, in the processes that this one starts."""
    if "amx_bf16" in flags:
        is_broken = do_without_broken_amx() or "ONEDNN_MAX_CPU_ISA" in os.environ
        return "broken-amx" if is_broken else "amx"
    return "avx512_bf16" if "avx512_bf16" in flags else "no-bf16"
