"""Time the measurements of training/position_measurements.py against a run's training.

    python benchmarks/mechanism.py

The networks are those of four settings. Documents are random words that fill every position. A
measured document and a document of a training step are timed in turns; the share of a run's
training follows from the numbers of documents. CPU time of one thread; on a GPU, elapsed time.
"""

import statistics
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from hydra import compose, initialize_config_dir

import operators
import results
import timing
from posfuse.config import CONF_DIR, Config
from posfuse.data.batching import Batch
from posfuse.process.environment import denormals_flushed, keep_memory
from posfuse.runs.checks import checked
from posfuse.training.diagnostics import BATCH
from posfuse.training.position_measurements import DOCUMENTS, SHARE, measure
from timing import DEVICE

MEASURES = (
    "model.network model.fusion model.encoder model.attention model.kernels model.dropout "
    "model.attention_encoding model.encoding training.position_measurements "
    "training.attention_by_distance training.probe training.patching conf/protocol"
)

TOKENS = 2**15  # of the documents that are measured at once


@dataclass(frozen=True)
class Setting:
    overrides: tuple[str, ...]
    read: int  # documents that training reads: those of an epoch, times the epochs


TASK = ("model.dropout=0", "model.token_scale=1", "data.batch_size=128")
SHORT = ("model.n_layers=1", "model.attention_dropout=0", "data.batch_size=32")
SETTINGS = {
    "missing_duplicate, experiment=positions": Setting(
        ("data=missing_duplicate", "encoding=rope", *TASK), 2 * 128_000
    ),
    "bbc_lead_story, experiment=quickstart": Setting(("data=bbc_lead_story", *SHORT), 7 * 2_500),
    "imdb, protocol=imdb": Setting(("data=imdb", "protocol=imdb"), 10 * 22_500),
    "arxiv, protocol=arxiv": Setting(
        ("data=arxiv", "protocol=arxiv", "data.batch_size=2"), 10 * 20_000
    ),
}


def config(overrides: tuple[str, ...]) -> Config:
    with initialize_config_dir(str(CONF_DIR), version_base="1.3"):
        return checked(compose("train", [*overrides, "logger=none"]))


def seconds(cfg: Config, n: int, rounds: int) -> tuple[float, float]:
    """Seconds of a training step of data.batch_size documents, and of `measure` for n documents;
    medians over the rounds."""
    classifier = operators.network(cfg)
    step = operators.step(cfg, classifier, *operators.documents(cfg.data.batch_size, longest(cfg)))
    sizes = [BATCH] * (n // BATCH) + [n % BATCH] * (n % BATCH > 0)
    batches = [batch(*operators.documents(size, longest(cfg))) for size in sizes]
    found: dict[str, list[float]] = {"step": [], "measure": []}
    for i in range(rounds + 1):
        for name in found:
            classifier.train(name == "step")
            start = timing.used(DEVICE)
            step() if name == "step" else measure(classifier.model, batches)
            if i:  # the first round warms up
                found[name].append(timing.used(DEVICE) - start)
    return statistics.median(found["step"]), statistics.median(found["measure"])


def longest(cfg: Config) -> int:
    return cfg.data.max_len


def batch(ids: Any, lengths: Any) -> Batch:
    index = torch.arange(len(ids), device=DEVICE)
    return Batch(ids, index % operators.CLASSES, lengths, index, ids.numel())


def row(name: str, setting: Setting, rounds: int) -> list[str | float]:
    """The setting, tokens, documents read and measured, a measured document in documents of
    training, and the share of the training's time in percent."""
    cfg = config(setting.overrides)
    n = int(np.clip(SHARE * setting.read, *DOCUMENTS))
    # A document of many tokens costs the same in a smaller batch.
    timed = min(n, BATCH, TOKENS // longest(cfg))
    step, measured = seconds(cfg, timed, rounds)
    relative = measured / timed / (step / cfg.data.batch_size)
    return [name, longest(cfg), setting.read, n, relative, 100 * relative * n / setting.read]


@denormals_flushed()
def main() -> None:
    parser = results.parser(__file__, __doc__)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--settings", nargs="+", default=list(SETTINGS), choices=SETTINGS)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    keep_memory()
    rows = []
    for name in arguments.settings:
        rows.append(row(name, SETTINGS[name], arguments.rounds))
        print(*rows[-1], sep="\t", flush=True)
    columns = ["setting", "tokens", "documents in training", "measured",
               "a measured document / one of training", "share of training, %"]  # fmt: skip
    note = (
        "trainer.mechanism: attention by distance, the probe and patching. The share is of the "
        "training steps alone; evaluations and the setup of a run make it smaller."
    )
    table = results.table("What a run measures after training", columns, rows, note)
    results.write(arguments, [table], {})


if __name__ == "__main__":
    main()
