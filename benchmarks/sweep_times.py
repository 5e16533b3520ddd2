"""The time of whole sweeps: many seeds of a small cell, and the IMDB row of Table 1.

    python benchmarks/sweep_times.py --imdb FOLDER    # on a machine with a GPU

Seeds: one run, then --seeds runs with so many at once. On a GPU small runs leave the device idle,
so several processes share it; if nvidia-cuda-mps-control is installed, the same again under
NVIDIA's Multi-Process Service, which lets their kernels run side by side. IMDB: add, concat and
gate_scalar, five seeds each, with the authors' settings. Without a GPU the runs share the cores.
"""

import math
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import results
from posfuse.runs import records
from timing import DEVICE

NEEDS = "a GPU"  # on CPUs it takes days
FOLDERS = ("imdb",)
MEASURES = (
    "model.network model.fusion model.encoder model.attention model.dropout "
    "model.attention_encoding model.encoding data.batching data.datamodule training.build "
    "training.module training.classifier training.run training.diagnostics training.checkpoints "
    "process.devices hydra_plugins.posfuse_parallel conf/experiment/table1.yaml "
    "conf/protocol/imdb.yaml conf/trainer/gpu.yaml conf/model/small.yaml "
    "conf/data/lead_story_long.yaml"
)
EXECUTABLE = str(Path(sys.executable).parent / "posfuse-train")
SMALL = [
    "data=lead_story_long", "fusion=add", "model.n_layers=1", "model.attention_dropout=0",
    "data.batch_size=32", "trainer.max_epochs=5",
]  # fmt: skip
IMDB = ["experiment=table1", "data=imdb", "fusion=add,concat,gate_scalar", "seed=range(0,5)"]
RUNS = 15  # of IMDB
MPS = "nvidia-cuda-mps-control"


def sweep(root: Path, overrides: list[str], at_once: int, runs: int) -> float:
    """Seconds of a sweep of `runs` runs from its command to its end, with so many at once; nan if
    it fails, for instance because the device's memory is too small for so many."""
    output = root / "runs"
    shutil.rmtree(output, ignore_errors=True)
    last = {override.partition("=")[0]: override for override in overrides}  # of each key
    command = [EXECUTABLE, "-m", *last.values(), "hydra/launcher=parallel", "logger=none"]
    command += ["trainer.progress=none", f"output_dir={output}", f"cache_dir={root / 'cache'}"]
    command += [f"hydra.launcher.n_jobs={at_once}"]
    if DEVICE.type == "cuda":
        command += ["trainer=gpu", f"hydra.launcher.runs_per_gpu={at_once}"]
    else:
        command += ["trainer.accelerator=cpu", "trainer.threads=1"]
        command += [f"hydra.launcher.runs_per_core={at_once}"]
    start = time.perf_counter()
    subprocess.run(command, check=False, stdout=subprocess.DEVNULL)
    seconds = time.perf_counter() - start
    found = len(list(output.rglob(records.RESULT)))
    if found != runs:
        print(f"{found} of {runs} runs have a result: {shlex.join(command)}", file=sys.stderr)
        return math.nan
    return seconds


@contextmanager
def shared_device(root: Path) -> Iterator[bool]:
    """NVIDIA's Multi-Process Service, for this process and those that it starts; gives whether it
    has started, which containers may not allow."""
    folders = {f"CUDA_MPS_{kind}_DIRECTORY": str(root / kind.lower()) for kind in ("PIPE", "LOG")}
    for folder in folders.values():
        Path(folder).mkdir()
    os.environ.update(folders)
    has_started = not subprocess.run([MPS, "-d"], check=False).returncode
    try:
        yield has_started
    finally:
        if has_started:
            subprocess.run([MPS], input="quit\n", text=True, check=True)
        for name in folders:
            del os.environ[name]


def seeds_table(root: Path, seeds: int, at_once: list[int], overrides: list[str]) -> results.Table:
    """Seconds of one seed and of all of them, and their ratio."""
    cell = [*SMALL, *overrides]
    sweep(root, [*cell, "seed=0", "trainer.max_epochs=1"], 1, 1)  # writes the ids
    one = sweep(root, [*cell, "seed=0"], 1, 1)
    rows: list[list[str | float]] = [["1", "1", one, "1.0×"]]

    def measure(how: str) -> None:
        for n in at_once:
            many = sweep(root, [*cell, f"seed=range({seeds})"], n, seeds)
            found = ["fails", ""] if math.isnan(many) else [many, f"{many / one:.1f}×"]
            rows.append([str(seeds), f"{n}{how}", *found])

    measure("")
    if DEVICE.type == "cuda" and shutil.which(MPS):
        with shared_device(root) as has_started:
            if has_started:
                measure(" (MPS)")
    note = "lead_story_long with add, five epochs. Seconds of the whole command, with its imports."
    return results.table("Seeds of a small cell", ["seeds", "at once", "s", "of one"], rows, note)


def imdb_table(root: Path, folder: Path, at_once: list[int], overrides: list[str]) -> results.Table:
    """Minutes of the IMDB row of Table 1."""
    row = [*IMDB, f"data.path={folder}", *overrides]
    short = ["trainer.max_epochs=1", "trainer.limit_batches=1"]
    sweep(root, [*row, *short], 1, RUNS)  # writes the ids
    rows: list[list[str | float]] = []
    for n in at_once:
        minutes = sweep(root, row, n, RUNS) / 60
        rows.append([str(n), "fails" if math.isnan(minutes) else minutes])
    note = (
        "15 runs with the authors' settings and number of epochs, float32 on a CPU, else bfloat16."
    )
    return results.table("The IMDB row of Table 1", ["at once", "minutes"], rows, note)


def main() -> None:
    parser = results.parser(__file__, __doc__)
    parser.add_argument("--seeds", type=int, default=24)
    parser.add_argument("--at-once", type=int, nargs="+", default=[1, 4, 8, 12, 24])
    parser.add_argument("--imdb", type=results.folder, help="folder, as data.path takes it")
    parser.add_argument("--imdb-at-once", type=int, nargs="+", default=[1, 3, 5])
    parser.add_argument("overrides", nargs="*", help="of all runs, as trainer.max_epochs=1")
    arguments = parser.parse_args()
    # One device, also where there are several.
    os.environ["CUDA_VISIBLE_DEVICES"] = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
    with tempfile.TemporaryDirectory() as folder:
        root, given = Path(folder), arguments.overrides
        tables = [seeds_table(root, arguments.seeds, arguments.at_once, given)]
        if arguments.imdb:
            at_once = arguments.imdb_at_once
            tables.append(imdb_table(root, arguments.imdb, at_once, given))
        else:
            print("imdb: skipped, no folder; give --imdb FOLDER")
    results.write(arguments, tables, {}, FOLDERS if arguments.imdb else ())


if __name__ == "__main__":
    main()
