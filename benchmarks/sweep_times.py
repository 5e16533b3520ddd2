"""The time of whole sweeps: many seeds of a small cell, and the IMDB row of Table 1.

    python benchmarks/sweep_times.py --imdb FOLDER    # on a machine with a GPU

Seeds: one run, then --seeds runs with so many at once. On a GPU small runs leave the device idle,
so several processes share it; if nvidia-cuda-mps-control is installed, the same again under
NVIDIA's Multi-Process Service, which lets their kernels run side by side. IMDB: add, concat and
gate_scalar, five seeds each, with the authors' settings. Without a GPU the runs share the cores.
"""

import os
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
    "training.module training.classifier training.run hydra_plugins.posfuse_parallel "
    "conf/experiment/table1.yaml conf/trainer/gpu.yaml"
)
EXECUTABLE = str(Path(sys.executable).parent / "posfuse-train")
SMALL = [
    "data=lead_story_long", "fusion=add", "model.n_layers=1", "model.attention_dropout=0",
    "data.batch_size=32", "trainer.max_epochs=5",
]  # fmt: skip
IMDB = ["experiment=table1", "data=imdb", "fusion=add,concat,gate_scalar", "seed=range(0,5)"]
MPS = "nvidia-cuda-mps-control"


def sweep(root: Path, overrides: list[str], at_once: int) -> float:
    """Seconds of a sweep from its command to its end, with so many runs at once."""
    output = root / "runs"
    shutil.rmtree(output, ignore_errors=True)
    command = [EXECUTABLE, "-m", *overrides, "hydra/launcher=parallel", "logger=none"]
    command += ["trainer.progress=none", f"output_dir={output}", f"cache_dir={root / 'cache'}"]
    command += [f"hydra.launcher.n_jobs={at_once}"]
    if DEVICE.type == "cuda":
        command += ["trainer=gpu", f"hydra.launcher.runs_per_gpu={at_once}"]
    else:
        command += ["trainer.accelerator=cpu", "trainer.threads=1"]
        command += [f"hydra.launcher.runs_per_core={at_once}"]
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    seconds = time.perf_counter() - start
    if not list(output.rglob(records.RESULT)):
        raise SystemExit(f"error: {' '.join(command)}: no run has a result; run it to see why")
    return seconds


@contextmanager
def shared_device(root: Path) -> Iterator[None]:
    """NVIDIA's Multi-Process Service, for this process and those that it starts."""
    folders = {f"CUDA_MPS_{kind}_DIRECTORY": str(root / kind.lower()) for kind in ("PIPE", "LOG")}
    for folder in folders.values():
        Path(folder).mkdir()
    os.environ.update(folders)
    subprocess.run([MPS, "-d"], check=True)
    try:
        yield
    finally:
        subprocess.run([MPS], input="quit\n", text=True, check=True)
        for name in folders:
            del os.environ[name]


def seeds_table(root: Path, seeds: int, at_once: list[int], overrides: list[str]) -> results.Table:
    """Seconds of one seed and of all of them, and their ratio."""
    cell = [*SMALL, *overrides]
    sweep(root, [*cell, "seed=0", "trainer.max_epochs=1"], 1)  # writes the ids
    one = sweep(root, [*cell, "seed=0"], 1)
    rows: list[list[str | float]] = [["1", "1", one, "1.0×"]]

    def measure(how: str) -> None:
        for n in at_once:
            many = sweep(root, [*cell, f"seed=range({seeds})"], n)
            rows.append([str(seeds), f"{n}{how}", many, f"{many / one:.1f}×"])

    measure("")
    if DEVICE.type == "cuda" and shutil.which(MPS):
        with shared_device(root):
            measure(" (MPS)")
    note = "lead_story_long with add, five epochs. Seconds of the whole command, with its imports."
    return results.table("Seeds of a small cell", ["seeds", "at once", "s", "of one"], rows, note)


def imdb_table(root: Path, folder: Path, at_once: list[int], overrides: list[str]) -> results.Table:
    """Minutes of the IMDB row of Table 1."""
    row = [*IMDB, f"data.path={folder}", *overrides]
    rows: list[list[str | float]] = [[str(n), sweep(root, row, n) / 60] for n in at_once]
    note = (
        "15 runs with the authors' settings and number of epochs, float32 on a CPU, else bfloat16."
    )
    return results.table("The IMDB row of Table 1", ["at once", "minutes"], rows, note)


def main() -> None:
    parser = results.parser(__file__, __doc__)
    parser.add_argument("--seeds", type=int, default=24)
    parser.add_argument("--at-once", type=int, nargs="+", default=[1, 4, 8, 12, 24])
    parser.add_argument("--imdb", type=Path, help="folder, as data.path takes it")
    parser.add_argument("--imdb-at-once", type=int, nargs="+", default=[1, 3, 5])
    parser.add_argument("overrides", nargs="*", help="of all runs, as trainer.max_epochs=1")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root, given = Path(folder), arguments.overrides
        tables = [seeds_table(root, arguments.seeds, arguments.at_once, given)]
        if arguments.imdb:
            at_once = arguments.imdb_at_once
            tables.append(imdb_table(root, arguments.imdb.absolute(), at_once, given))
        else:
            print("imdb: skipped, no folder; give --imdb FOLDER")
    results.write(arguments, tables, {}, FOLDERS if arguments.imdb else ())


if __name__ == "__main__":
    main()
