"""The stored results of all machines, and which of them are current."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import measured_code

Row = list[str | float]
UNITS = {  # of bfloat16, as results.py names them
    "amx": "with AMX",
    "broken-amx": "with broken AMX",
    "avx512_bf16": "with AVX-512 BF16",
    "no-bf16": "without bfloat16 units",
}


@dataclass(frozen=True)
class Result:
    """A file benchmarks/results/MACHINE/NAME.json."""

    name: str
    content: dict[str, Any]
    is_current: bool

    @property
    def machine(self) -> str:
        m = self.content["machine"]
        cpu = f"{m['cpu']} {UNITS[m['bf16']]}" if "bf16" in m else m["cpu"]  # absent in old files
        return ", ".join(filter(None, [cpu, f"{m['cores']} cores", m["gpu"]]))

    @property
    def measured(self) -> str:
        """Machine, date and commit."""
        return f"{self.machine}; {self.content['date']}, {spelt(self.content['commit'])}"

    @property
    def provenance(self) -> str:
        """Machine, versions, commit, date and duration, as one sentence."""
        m = self.content["machine"]
        parts = [f"{self.machine}, {m['threads']} threads, {m['memory_gib']:.0f} GiB"]
        parts += [f"torch {m['torch']}, Python {m['python']}"]
        parts += [f"{spelt(self.content['commit'])}, {self.content['date']}"]
        if "seconds" in self.content:
            parts.append(f"measured in {self.content['seconds']} s")
        return f"{'; '.join(parts)}."

    def rows(self, table: int) -> list[Row]:
        rows: list[Row] = self.content["tables"][table]["rows"]
        return rows


def spelt(commit: str | None) -> str:
    if commit is None:
        return "outside a checkout"
    head, _, changes = commit.partition("+")
    return f"commit {head[:10]} with {changes}" if changes else f"commit {head[:10]}"


def read(folder: Path, scripts: dict[str, Path], torch: str) -> list[Result]:
    """The results of a folder, those of the machine with the most current ones first; of several
    such machines, the one with the newest current result."""
    found = {}
    for path in sorted(folder.glob("*/*.json")):
        if path.stem not in scripts:
            raise SystemExit(f"error: {path}: no benchmark has this name; remove the file")
        content = json.loads(path.read_text(encoding="utf-8"))
        is_current = measured_code.is_current(content, scripts[path.stem], torch)
        found[path] = Result(path.stem, content, is_current)
    dates: dict[Path, list[str]] = {path.parent: [] for path in found}  # of current results
    for path, result in found.items():
        if result.is_current:
            dates[path.parent].append(result.content["date"])

    def rank(path: Path) -> tuple[int, str]:
        return len(dates[path.parent]), max(dates[path.parent], default="")

    return [found[path] for path in sorted(found, key=rank, reverse=True)]


def by_machine(results: list[Result]) -> dict[str, dict[str, Result]]:
    """The current results by machine and benchmark, in the order of `read`."""
    machines: dict[str, dict[str, Result]] = {}
    for result in results:
        if result.is_current:
            machines.setdefault(result.machine, {}).setdefault(result.name, result)
    return machines
