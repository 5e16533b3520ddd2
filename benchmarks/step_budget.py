"""Where the time of a run goes, to the operator, and what alternatives give.

    python benchmarks/step_budget.py --imdb FOLDER

Two cells of small runs, of which studies consist, with one thread: the longest task of the demo
(one layer, 180 words) and a task of experiment=positions (two layers, up to 40 symbols). Of these a
whole run and a bare loop (forward and backward pass, clipping, optimiser) train in turn on equally
many batches of the same kind; several seeds also train as a stack. IMDB with the authors' settings,
with all cores: the bare loop alone, on a few batches. CPU times, in which other processes on the
machine count less.
"""

import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lightning as L
import torch
from hydra import compose, initialize_config_dir
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.trainer.states import TrainerFn

import results
import stacked
import steps
from posfuse.config import CONF_DIR, Config
from posfuse.process.environment import do_without_broken_amx
from posfuse.runs.checks import checked
from posfuse.training import run
from posfuse.training.build import build_data
from posfuse.training.diagnostics import Diagnostics

MEASURES = (
    "model.network model.fusion model.encoder model.attention model.kernels model.dropout "
    "model.attention_encoding model.encoding data.token_store data.batching data.datamodule "
    "training.build training.module training.classifier training.diagnostics "
    "training.position_measurements training.history training.run training.checkpoints "
    "process.environment conf/protocol/imdb.yaml conf/model/small.yaml "
    "conf/data/lead_story_long.yaml conf/data/missing_duplicate.yaml"
)
FOLDERS = ("imdb",)
SHARED = [
    "fusion=add", "encoding=sinusoidal", "trainer.accelerator=cpu", "trainer.progress=none",
    "logger=none",
]  # fmt: skip
SMALL = ["model.token_scale=1", "model.attention_dropout=0", "trainer.threads=1", *SHARED]
CELLS = {
    "lead_story_long": [
        "data.batch_size=32", "model.n_layers=1", "optim.lr=0.003", "data.split_seed=seed",
        "trainer.max_epochs=5", *SMALL,
    ],
    "missing_duplicate": [
        "data.batch_size=128", "model.n_layers=2", "model.dropout=0", "optim.lr=0.001",
        "trainer.max_epochs=1", "trainer.evaluations=5", "data.test_lengths=[40]", *SMALL,
    ],
}  # fmt: skip
IMDB = ["protocol=imdb", *SHARED]


@dataclass(frozen=True)
class Turn:
    """Batches of an alternative's turn: those that do not count, and the others."""

    warm: int
    counted: int


SEEDS = (4,)  # of a stack
TURN, IMDB_TURN = Turn(20, 40), Turn(1, 3)


class Clock(Callback):
    """CPU seconds of a fit, and of its validation."""

    fit = validation = 0.0

    def on_fit_start(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        self.fit -= time.process_time()

    def on_fit_end(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        self.fit += time.process_time()

    # Once more a run validates after its fit.
    def on_validation_start(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        if trainer.state.fn == TrainerFn.FITTING:
            self.validation -= time.process_time()

    def on_validation_end(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        if trainer.state.fn == TrainerFn.FITTING:
            self.validation += time.process_time()


class TimedDiagnostics(Diagnostics):
    """A run's diagnostics, with their CPU seconds."""

    seconds = 0.0  # of all runs so far

    def on_before_optimizer_step(self, *arguments: Any) -> None:
        self.timed(super().on_before_optimizer_step, *arguments)

    def on_train_epoch_end(self, *arguments: Any) -> None:
        self.timed(super().on_train_epoch_end, *arguments)

    def timed(self, hook: Any, *arguments: Any) -> None:
        TimedDiagnostics.seconds -= time.process_time()
        hook(*arguments)
        TimedDiagnostics.seconds += time.process_time()


def config(cell: str, overrides: list[str], cache: str) -> Config:
    with initialize_config_dir(str(CONF_DIR), version_base="1.3"):
        given = [f"data={cell}", *overrides, f"cache_dir={cache}", f"output_dir={cache}"]
        return checked(compose("train", given))


def fit_seconds(cfg: Config) -> dict[str, float]:
    """CPU seconds of the fit of a whole run, and those of its validation and its diagnostics."""
    clock, build, before = Clock(), run.build_trainer, TimedDiagnostics.seconds
    run.build_trainer = lambda cfg, folder, observers: build(cfg, folder, [*observers, clock])
    run.Diagnostics = TimedDiagnostics  # type: ignore[misc]
    try:
        with tempfile.TemporaryDirectory() as folder:
            run.run(cfg, Path(folder))
    finally:
        run.build_trainer, run.Diagnostics = build, Diagnostics  # type: ignore[misc]
    diagnostics = TimedDiagnostics.seconds - before
    return {"fit": clock.fit, "validation": clock.validation, "diagnostics": diagnostics}


def whole_run(cell: str, cfg: Config, repeats: int) -> list[str | float]:
    """Steps, CPU seconds of a run's fit, and the shares of its parts; medians over the turns."""
    data = build_data(cfg)
    on = steps.batches(cfg, data, cfg.trainer.limit_batches)
    on = on * cfg.trainer.max_epochs * cfg.trainer.evaluations  # as often as the run evaluates
    turns = []
    for _ in range(repeats):
        bare = steps.seconds(steps.stepper(cfg, data), on)
        turns.append({"bare": bare, **fit_seconds(cfg)})
    fit = statistics.median(turn["fit"] for turn in turns)
    shares = [
        f"{statistics.median(turn[part] / turn['fit'] for turn in turns):.1%}"
        for part in ("bare", "validation", "diagnostics")
    ]
    return [cell, len(on), fit, *shares]


def main() -> None:
    parser = results.parser(__file__, __doc__)
    parser.add_argument("--imdb", type=results.folder, help="folder, as data.path takes it")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--cells", nargs="+", choices=CELLS, default=list(CELLS))
    arguments = parser.parse_args()
    do_without_broken_amx()
    steps.as_in_a_run()
    cores = torch.get_num_threads()
    torch.set_num_threads(1)
    runs, parts, others, stacks = [], [], [], []
    with tempfile.TemporaryDirectory() as cache:
        cells = [(cell, config(cell, CELLS[cell], cache), TURN) for cell in arguments.cells]
        runs = [whole_run(cell, cfg, arguments.repeats) for cell, cfg, _ in cells]
        if arguments.imdb:
            overrides = [*IMDB, f"data.path={arguments.imdb}"]
            cells.append(("imdb", config("imdb", overrides, cache), IMDB_TURN))
        else:
            print("imdb: skipped, no folder; give --imdb FOLDER")
        for cell, cfg, turn in cells:
            torch.set_num_threads(cores if cell == "imdb" else 1)
            data = build_data(cfg)
            on = steps.batches(cfg, data, turn.warm + turn.counted)
            warm, counted = on[: turn.warm], on[turn.warm :]
            found = steps.alternatives(cfg, data)
            others += steps.compared(cell, found, warm, counted, arguments.repeats)
            parts += steps.budget(cell, found[steps.USUAL], counted)
            if cell != "imdb":
                both = (warm, counted)
                stacks += stacked.compared(cell, cfg, data, SEEDS, both, arguments.repeats)
            print(f"{cell}: {len(found)} kinds of steps compared", flush=True)
    tables = [
        results.table(
            "A small run",
            ["cell", "steps", "fit, CPU s", "bare loop", "validation", "diagnostics"],
            runs,
            "Shares of the fit. The bare loop is forward and backward pass, clipping and optimiser "
            "on as many batches. The rest of the fit is Lightning, the batches and checkpoints. "
            f"Medians of {arguments.repeats} turns, one thread.",
        ),
        results.table(
            "A step of the bare loop",
            ["cell", "operators", "share"],
            parts,
            f"Shares of CPU time by torch's profiler over {TURN.counted} steps of a small cell and "
            f"{IMDB_TURN.counted} of IMDB. With dropout inside attention posfuse computes "
            "attention by blocks of products, softmax, dropout, sums and products of numbers.",
        ),
        results.table(
            "Alternatives for a step",
            ["cell", "step", "CPU ms", "speed"],
            others,
            "Steps of the bare loop on the same batches; the speed is relative to the first row of "
            "the cell in the same turn. A bound computes less than the run does: it limits what a "
            "change could gain. The bound of fused elementwise work contains that of the masks. "
            "torch.compile's own time, tens of seconds a run, does not count.",
        ),
        results.table(
            "Seeds as a stack",
            ["cell", "step", "CPU ms", "speed"],
            stacks,
            "A step of so many seeds, one after another and as a stack by torch.func, on the same "
            "batches. In a stack attention uses batched products, and dropout is torch's.",
        ),
    ]
    results.write(
        arguments, tables, {"repeats": arguments.repeats}, FOLDERS if arguments.imdb else ()
    )


if __name__ == "__main__":
    main()
