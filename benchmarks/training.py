"""Time training and evaluation against the Trainer of Hugging Face and against a plain loop.

    python benchmarks/training.py --agnews FOLDER --imdb FOLDER --arxiv FOLDER

A folder is that of a corpus, as data.path takes it; without one, texts are generated. The systems
(systems.py) take turns on the same documents, each in its own process, because memory allocation
and the allowed algorithms are part of a system. An epoch is a few batches that represent the
corpus: the batches of a real epoch are sorted by tokens and divided into equal parts, and the
middle of each part is taken. The first round is not counted. Peak memory is that of a process which
only trains on and evaluates the longest documents.
"""

import argparse
import shutil
import statistics
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

import generated_texts
import harness
import store
import systems
from harness import IS_GPU
from posfuse.config import Config
from posfuse.data.corpora import load
from posfuse.data.datamodule import TextDataModule
from posfuse.data.splits import Split, splits
from posfuse.process import precision
from posfuse.training.build import build_data

MEASURES = (
    "model training.build training.module training.classifier training.optimizer training.task "
    "training.observers training.diagnostics data.batching data.datamodule process.precision "
    "process.environment process.distributed conf/protocol conf/speed"
)
FOLDERS = ("agnews", "imdb", "arxiv")
POSFUSE = {"exact": ["speed=exact"], "fast": ["speed=fast"]}
if shutil.which("c++"):
    POSFUSE["exact, compiled"] = ["speed=exact", "trainer.compile=true"]
TRAINER, PLAIN, PRODUCTS = "Trainer", "plain loop", "products alone"
HALF = f"{TRAINER}, bfloat16"
KINDS = ("training", "evaluation")


@dataclass(frozen=True)
class Settings:
    """The part of a protocol (conf/protocol) that one round times."""

    data: str
    max_len: int
    batch: int  # documents, in training and in evaluation
    steps: int  # of training
    plain_steps: int  # of the plain loop's training
    evaluated: int  # batches


# A GPU does a few steps in milliseconds, so that their start would count. On a CPU all systems
# together need up to 24 GB with these batches of ArXiv; the authors' have 64 documents.
MORE = 12 if IS_GPU else 1
SETTINGS = {
    "agnews": Settings("agnews", 512, 64, 10 * MORE, MORE, 30 * MORE),
    "imdb": Settings("imdb", 512, 64, 6 * MORE, MORE, 4 * MORE),
    "arxiv_1024": Settings("arxiv", 1024, 64 if IS_GPU else 8, 4 * MORE, MORE, 2 * MORE),
    "arxiv_4096": Settings("arxiv", 4096, 64 if IS_GPU else 2, 4 * MORE, MORE, 2 * MORE),
}
GENERATED = 300 * MORE  # documents for training, at least


def config(settings: Settings, system: str, folder: Path, cache: str) -> Config:
    """The protocol with the sinusoidal table added."""
    cfg = harness.config(
        *POSFUSE[system], f"data={settings.data}", f"protocol={settings.data}",
        "encoding=sinusoidal", "fusion=add", f"data.path={folder}", f"cache_dir={cache}",
        f"output_dir={cache}", f"data.batch_size={settings.batch}", "trainer.max_epochs=1",
        f"data.eval_batch_size={settings.batch}", f"data.max_len={settings.max_len}", "logger=none",
    )  # fmt: skip
    cfg.trainer.precision = precision.precision_of(cfg)  # as posfuse train does
    return cfg


def batches(data: TextDataModule) -> dict[str, list[np.ndarray]]:
    """The batches of a real epoch and of the test, those of the fewest tokens first."""
    loaders = {"train": data.train_dataloader(), "test": data.test_dataloader()}
    lengths = {split: data.documents[split].lengths for split in loaders}
    return {
        split: sorted(loader.sampler, key=lambda batch, of=lengths[split]: int(of[batch].sum()))
        for split, loader in loaders.items()
    }


def middles(batches: list[np.ndarray], n: int) -> np.ndarray:
    """The documents in the middles of n equal parts of the batches."""
    n = min(n, len(batches))
    return np.concatenate([batches[(2 * i + 1) * len(batches) // (2 * n)] for i in range(n)])


def shuffled(split: Split, numbers: np.ndarray) -> tuple[list[str], list[int]]:
    """Texts and labels of these documents, in random order."""
    documents = split.take(np.sort(numbers))
    texts, order = list(documents.texts()), np.random.default_rng(0).permutation(len(numbers))
    return [texts[i] for i in order], documents.labels[order].tolist()


class Comparison:
    """The systems on one corpus; `makes` are the arguments of `harness.apart` by system."""

    def __init__(self, settings: Settings, folder: Path, cache: str) -> None:
        self.settings = settings
        self.configs = {system: config(settings, system, folder, cache) for system in POSFUSE}
        self.cfg = self.configs["exact"]
        self.data = build_data(self.cfg)
        self.parts, self.names = splits(load(self.cfg.data), self.cfg.data)
        ids = range(self.data.store.vocabulary_size)
        self.words = dict(zip(self.data.store.words(ids), ids, strict=True))

    def makes(self, of: systems.Chosen) -> dict[str, tuple[Any, ...]]:
        texts = {split: shuffled(self.parts[split], numbers) for split, numbers in of.items()}
        corpus = systems.Corpus(self.words, len(self.names), texts)
        most = self.settings.plain_steps * self.settings.batch
        found: dict[str, tuple[Any, ...]] = {TRAINER: (systems.HuggingFace, self.cfg, corpus)}
        if IS_GPU or self.configs["fast"].trainer.precision == precision.BFLOAT16:
            found[HALF] = (systems.HuggingFace, self.cfg, corpus, True)
        found[PLAIN] = (systems.Plain, self.cfg, corpus, most)
        found |= {s: (systems.Posfuse, cfg, of) for s, cfg in self.configs.items()}
        return found | {PRODUCTS: (systems.Products, self.cfg, of)}

    def measure(self, name: str, repeats: int) -> dict[str, Any]:
        """Rates of every repeat and peak memory, by system, and the tokens of a document."""
        every, settings = batches(self.data), self.settings
        train = middles(every["train"], settings.steps)
        test = middles(every["test"], settings.evaluated)
        makes = self.makes({"train": train, "test": test})
        with ExitStack() as stack:
            processes = {s: stack.enter_context(harness.apart(*makes[s])) for s in makes}
            turns = {
                s: partial(turn, f"{name}, {s}", partial(process, makes[s][0].epoch))
                for s, process in processes.items()
            }
            rates = harness.in_turn(turns, repeats + 1)
        makes = self.makes({split: of[-1] for split, of in every.items()})  # the longest ones
        del makes[PRODUCTS]
        memory = {system: harness.peak(one_epoch, *make) for system, make in makes.items()}
        tokens = float(self.data.documents["train"].lengths[train].mean())
        counted = {system: measured[1:] for system, measured in rates.items()}
        return {"rates": counted, "peak_bytes": memory, "tokens": tokens}


def turn(title: str, epoch: Callable[[], systems.Rates]) -> systems.Rates:
    rates = epoch()
    print(title, *(f"{k} {rates[k]:.2f} docs/s" for k in KINDS), sep=", ", flush=True)
    return rates


def one_epoch(make: Any, *arguments: Any) -> None:
    make(*arguments).epoch()


Measured = dict[str, dict[str, Any]]  # what `Comparison.measure` returns, by settings


def ratios(title: str, measured: Measured, baseline: str, note: str) -> store.Table:
    """The rates of a baseline, and those of the others as multiples of them: a row for each entry
    of `measured`."""
    rows, shown = [], [*POSFUSE, PRODUCTS]
    if baseline == TRAINER and any(HALF in found["rates"] for found in measured.values()):
        shown.insert(0, HALF)
    for name, found in measured.items():
        row: store.Row = [name, found["tokens"]]
        for kind in KINDS:
            of = {s: [rate[kind] for rate in own] for s, own in found["rates"].items()}
            cells = harness.compared(of, baseline)
            row += [cells[baseline][0], *(cells[s][1] if s in cells else "–" for s in shown)]
        rows.append(row)
    columns = [f"{kind}: {of}" for kind in KINDS for of in (f"{baseline}, docs/s", *shown)]
    return store.table(title, ["settings", "tokens", *columns], rows, note)


def rates(measured: Measured) -> store.Table:
    """Rates and peak memory of all systems."""
    rows: list[store.Row] = []
    for name, found in measured.items():
        for system in found["peak_bytes"]:
            own = found["rates"][system]
            medians = [statistics.median(rate[kind] for rate in own) for kind in KINDS]
            rows.append([name, system, *medians, found["peak_bytes"][system] / 1e9])
    columns = ["settings", "system", *(f"{kind} docs/s" for kind in KINDS), "peak memory GB"]
    return store.table("Rates and memory", columns, rows, OF_MEMORY)


OF_TRAINER = (
    "`Trainer` is BertForSequenceClassification in the Trainer of transformers VERSION, in "
    "float32; also in bfloat16 on a GPU and where speed=fast chooses bfloat16. ×: documents per "
    "second divided by those of the Trainer in float32. Products alone: the matrix products of the "
    "linear layers in float32 and nothing else. No system that computes these padded batches in "
    "float32 can exceed them on this machine. Tokens are those of a training document, on average; "
    "documents are generated with the lengths of the corpus unless the command names its folder."
)
OF_PLAIN = "In evaluation the loop uses torch's fast path."
OF_MEMORY = (
    "Peak memory is that of a process that trains on one batch of the longest documents and "
    "evaluates another one."
)


def measure(given: argparse.Namespace) -> list[store.Table]:
    if not find_spec("transformers") or not find_spec("accelerate"):
        raise SystemExit("error: the Trainer is not installed; pip install 'posfuse[bench]'")
    measured = {}
    with tempfile.TemporaryDirectory() as generated, tempfile.TemporaryDirectory() as cache:
        for name in given.settings:
            settings = SETTINGS[name]
            own = getattr(given, settings.data)
            folder = generated_texts.folder_of(settings.data, own, Path(generated), GENERATED)
            measured[name] = Comparison(settings, folder, cache).measure(name, given.repeats)
    of_trainer = OF_TRAINER.replace("VERSION", version("transformers"))
    return [
        ratios("Against the Trainer of Hugging Face", measured, TRAINER, of_trainer),
        ratios("Against the plain loop", measured, PLAIN, OF_PLAIN),
        rates(measured),
    ]


if __name__ == "__main__":
    store.main(__file__, measure, settings=list(SETTINGS), repeats=3)
