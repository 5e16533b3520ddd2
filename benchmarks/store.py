"""Store the results of a benchmark, and read those of all machines.

A result is the file benchmarks/results/MACHINE/NAME.json: tables, command, versions, machine, and
the digest of the code that was measured. performance.py makes pages of all results.
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
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import torch

import measured_code
from posfuse.process.environment import CPU_INFO, commit, do_without_broken_amx

SCRIPTS = Path(__file__).resolve().parent
RESULTS = SCRIPTS / "results"
CODE = ("src", "conf", "benchmarks", ":!benchmarks/results")  # changes of which a result names
ISA = "ONEDNN_MAX_CPU_ISA"  # do_without_broken_amx sets it
UNITS = {
    "amx": "with AMX",
    "broken-amx": "with broken AMX",
    "avx512_bf16": "with AVX-512 BF16",
    "no-bf16": "without bfloat16 units",
}
Row = list[Any]  # of text and numbers
Table = dict[str, Any]


def table(title: str, columns: list[str], rows: Iterable[Row], note: str) -> Table:
    """A table of a result; `note` explains it to the reader."""
    return {"title": title, "columns": columns, "rows": list(rows), "note": note}


def main(
    script: str,
    measure: Callable[[argparse.Namespace], tuple[list[Table], Any]],
    **options: Any,
) -> None:
    """A benchmark's command: measure and write. `measure` returns tables and raw data.

    Each option has the default and the type given here; a list takes several values. The corpora of
    the script's FOLDERS become options too, and `overrides` takes Hydra's. The commit and the
    digest are those of the start. An interruption leaves the previous file as it was.
    """
    start, path = time.perf_counter(), Path(script)
    parser = argparse.ArgumentParser(
        description=measured_code.docstring(path).splitlines()[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--out", type=Path, help="the result (else benchmarks/results/MACHINE)")
    corpora = measured_code.constant(path, "FOLDERS") or ()
    for name in corpora:
        parser.add_argument(f"--{name}", type=folder, help="a folder, as data.path takes it")
    for name, default in options.items():
        option = f"--{name.replace('_', '-')}"
        if name == "overrides":
            parser.add_argument(name, nargs="*", help="after --, as data.max_len=32")
        elif isinstance(default, list):
            kind = type(default[0])
            parser.add_argument(option, type=kind, nargs="+", default=default, help=" ")
        else:
            parser.add_argument(option, type=type(default), default=default, help=" ")
    arguments = parser.parse_args()
    content = {
        "command": command(sys.argv),
        "commit": commit(*CODE),
        "date": date.today().isoformat(),
        "machine": machine(),
        "code": measured_code.digest(path, measured_code.installed_torch()),
        "folders": sorted(name for name in corpora if getattr(arguments, name)),
    }
    content["tables"], content["raw"] = measure(arguments)
    content["seconds"] = round(time.perf_counter() - start)
    out = arguments.out or default_path(path.stem)
    out.parent.mkdir(parents=True, exist_ok=True)
    partial = out.with_suffix(".partial")
    partial.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    partial.replace(out)


def folder(text: str) -> Path:
    """The type of an option that takes a corpus's folder."""
    path = Path(text)
    if not path.is_dir():
        raise argparse.ArgumentTypeError(f"{text} is no folder; give one with train and test")
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
    """A key of UNITS. Virtual Xeons have one name with any of these, but not one speed."""
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


@dataclass(frozen=True)
class Result:
    """A stored result."""

    name: str
    content: dict[str, Any]
    is_current: bool

    @property
    def measured(self) -> str:
        """Machine, date and commit."""
        m = self.content["machine"]
        cpu = f"{m['cpu']} {UNITS[m['bf16']]}" if "bf16" in m else m["cpu"]  # absent in old files
        machine = ", ".join(filter(None, [cpu, f"{m['cores']} cores", m["gpu"]]))
        return f"{machine}; {self.content['date']}, {spelt(self.content['commit'])}"

    @property
    def provenance(self) -> str:
        """Machine, date, commit, versions and duration, as one sentence."""
        m = self.content["machine"]
        return (
            f"{self.measured}; {m['threads']} threads, {m['memory_gib']:.0f} GiB; torch "
            f"{m['torch']}, Python {m['python']}; measured in {self.content.get('seconds', '?')} s."
        )


def spelt(commit: str | None) -> str:
    if commit is None:
        return "outside a checkout"
    head, _, changes = commit.partition("+")
    return f"commit {head[:10]} with {changes}" if changes else f"commit {head[:10]}"


def read(folder: Path, scripts: dict[str, Path], torch: str) -> list[Result]:
    """The results of a folder, by machine and name."""
    found = []
    for path in sorted(folder.glob("*/*.json")):
        if path.stem not in scripts:
            raise SystemExit(f"error: {path}: no benchmark has this name; remove the file")
        content = json.loads(path.read_text(encoding="utf-8"))
        is_current = measured_code.is_current(content, scripts[path.stem], torch)
        found.append(Result(path.stem, content, is_current))
    return found
