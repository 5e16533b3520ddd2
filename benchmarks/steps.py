"""Time a training step, and what could replace parts of it.

    python benchmarks/steps.py --imdb FOLDER

On a CPU: two small runs, of which studies consist, with one thread: the longest task of the demo
(one layer, 180 words) and a task of experiment=positions (two layers, up to 40 symbols); and IMDB
with the authors' settings and all cores. On a GPU: the first of these, IMDB and ArXiv (generated
documents), all with bfloat16 mixed precision. A step is forward and backward pass, clipping and
optimiser. CPU times, in which other processes on the machine count less; on a GPU those of the
clock.
"""

import argparse
import math
import os
import shutil
import statistics
import tempfile
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

import generated_texts
import harness
import store
from harness import DEVICE
from posfuse.config import Config
from posfuse.data.batching import Batch, ResidentDocuments
from posfuse.data.datamodule import TextDataModule
from posfuse.process.environment import do_without_broken_amx, flushing_denormals, keep_memory
from posfuse.training.build import build_data, build_module

MEASURES = (
    "model training data.token_store data.batching data.datamodule process conf/protocol "
    "conf/model/small.yaml conf/data/lead_story_long.yaml conf/data/missing_duplicate.yaml"
)
FOLDERS = ("imdb",)
IS_GPU = DEVICE.type == "cuda"
SHARED = ["fusion=add", "encoding=sinusoidal", "logger=none"]
OF_SMALL = ["model.token_scale=1", "model.attention_dropout=0", *SHARED]
CELLS = {
    "lead_story_long": [
        "data=lead_story_long", "data.batch_size=32", "model.n_layers=1", *OF_SMALL,
    ],
    "missing_duplicate": [
        "data=missing_duplicate", "data.batch_size=128", "model.dropout=0",
        "data.test_lengths=[40]", *OF_SMALL,
    ],
    "imdb": ["data=imdb", "protocol=imdb", *SHARED],
    "arxiv": ["data=arxiv", "protocol=arxiv", *SHARED],
}  # fmt: skip
SMALL = ["lead_story_long", "missing_duplicate"]  # cells of one thread
DEFAULT = ["lead_story_long", "imdb", "arxiv"] if IS_GPU else [*SMALL, "imdb"]
USUAL = "as a run does"
Step = Callable[[Batch], None]


def as_in_a_run() -> None:
    """The settings of torch that a run makes."""
    do_without_broken_amx()
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    keep_memory()
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False


def batches(data: TextDataModule, n: int) -> list[Batch]:
    """The first n training batches of a run."""
    documents = data.documents["train"]
    if IS_GPU:  # as in a run: other lengths, and padding to a multiple of 8
        documents = ResidentDocuments(documents, documents.max_len, DEVICE)
    return [documents[members] for members in islice(data.train_dataloader().sampler, n)]


def stepper(cfg: Config, data: TextDataModule, kind: Any = None, compiled: bool = False) -> Step:
    """A step of the run's network, whose products have this number type."""
    module = build_module(cfg, data).to(DEVICE)
    optimizer = module.configure_optimizers()
    module.model.train()
    if compiled:
        module.model.compile(dynamic=True)

    def step(batch: Batch) -> None:
        with torch.autocast(DEVICE.type, kind) if kind else nullcontext():
            logits = module.model(batch.ids, batch.lengths)
        optimizer.zero_grad()
        F.cross_entropy(logits.float(), batch.labels).backward()
        module.configure_gradient_clipping(optimizer, cfg.trainer.clip_norm)
        optimizer.step()

    return step


@flushing_denormals()  # as a run is
def seconds(step: Step, on: Sequence[Batch]) -> float:
    return harness.seconds(lambda: [step(batch) for batch in on], harness.used)


def alternatives(cfg: Config, data: TextDataModule) -> dict[str, Step]:
    """The usual step and its alternatives, by name. Those named "bound" compute less: they limit
    what a change could gain."""
    kind, other = (torch.bfloat16, None) if IS_GPU else (None, torch.bfloat16)
    has_dropout = cfg.model.dropout > 0 or bool(cfg.model.attention_dropout)
    without = replace(cfg, model=replace(cfg.model, dropout=0.0, attention_dropout=0.0))
    usual = stepper(cfg, data, kind)
    found = {USUAL: usual}
    if has_dropout:
        found["no dropout (bound of masks drawn once)"] = stepper(without, data, kind)
    found["no padding (bound of packed documents)"] = lambda batch: usual(even(batch))
    found["bfloat16" if other else "float32"] = stepper(cfg, data, other)
    if shutil.which("c++"):
        found["torch.compile"] = stepper(cfg, data, kind, compiled=True)
    return found


def even(batch: Batch) -> Batch:
    """As many tokens, in documents of the batch's mean length."""
    multiple = 8 if IS_GPU else 1  # as a run pads
    length = multiple * math.ceil(batch.n_tokens / len(batch.lengths) / multiple)
    length = min(length, batch.ids.shape[1])
    return replace(batch, ids=batch.ids[:, :length], lengths=torch.full_like(batch.lengths, length))


def works(step: Step, warm: Sequence[Batch]) -> bool:
    """Whether a step runs: a compiler may be incomplete, and a GPU's memory too small."""
    try:
        seconds(step, warm)
    except RuntimeError as error:  # also torch's errors of memory and of the compiler
        print(f"a step fails: {str(error).splitlines()[0]}", flush=True)
        return False
    return True


def compared(
    name: str, steps: dict[str, Step], warm: Sequence[Batch], on: Sequence[Batch], repeats: int
) -> list[store.Row]:
    """Rows of a table: ms of each step, and the usual one's time divided by it. The steps take
    turns; medians over the turns. A step that fails has a row without numbers."""
    working = {of: partial(seconds, step, on) for of, step in steps.items() if works(step, warm)}
    times = harness.in_turn(working, repeats)
    rows: list[store.Row] = [[name, of, "", "fails"] for of in steps if of not in working]
    for of, own in times.items():
        ratio = harness.median_ratio(times, USUAL, of)
        rows.append([name, of, 1e3 * statistics.median(own) / len(on), f"{ratio:.2f}×"])
    return rows


def measure(given: argparse.Namespace) -> tuple[list[store.Table], Any]:
    as_in_a_run()
    n, cores = given.batches, torch.get_num_threads()
    rows: list[store.Row] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for cell in given.cells:
            own = [*given.overrides]
            if cell == "imdb":
                if not given.imdb:
                    print("imdb: skipped, no folder; give --imdb FOLDER")
                    continue
                own.append(f"data.path={given.imdb}")
            if cell == "arxiv":
                generated_texts.write_arxiv(folder / "arxiv", 64 * 2 * n)
                own.append(f"data.path={folder / 'arxiv'}")
            torch.set_num_threads(1 if cell in SMALL else cores)
            cfg = harness.config(*CELLS[cell], *own, f"cache_dir={folder / 'cache'}")
            data = build_data(cfg)
            on = batches(data, 2 * n if IS_GPU or cell in SMALL else 4)
            warm, on = on[: len(on) // 2], on[len(on) // 2 :]
            found = alternatives(cfg, data)
            rows += compared(cell, found, warm, on, given.repeats)
            print(f"{cell}: {len(found)} kinds of steps compared", flush=True)
    note = (
        "On the same batches; the speed is relative to the first row of the cell in the same turn. "
        "A bound computes less than the run does: it limits what a change could gain. "
        "torch.compile's own time, tens of seconds a run, does not count."
    )
    columns = ["cell", "step", "ms", "speed"]
    return [store.table("Alternatives for a training step", columns, rows, note)], {}


if __name__ == "__main__":
    store.main(__file__, measure, cells=DEFAULT, repeats=3, batches=20, overrides=[])
