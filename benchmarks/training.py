"""Time training and evaluation against the plain baseline, on the same documents.

    python benchmarks/training.py --agnews FOLDER --imdb FOLDER

The systems take turns, each in its own process, because memory allocation and the allowed
algorithms are part of a system. posfuse's epoch is a few batches that represent the corpus: the
batches of the real epoch are sorted by length and divided into equal parts, and the middle of each
part is taken. The baseline trains on documents of these batches, since its time per document does
not depend on length, and evaluates the same documents as posfuse. Peak memory is measured in a
process that does nothing else.
"""

import argparse
import statistics
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import generated_texts
import harness
import plain
import store
import systems
from harness import DEVICE
from posfuse.config import Config
from posfuse.data.corpora import load
from posfuse.data.splits import Split, splits
from posfuse.process import precision
from posfuse.process.environment import do_without_broken_amx

MEASURES = "model training data.batching data.datamodule process conf/protocol conf/speed"
FOLDERS = ("agnews", "imdb")  # of corpora that cannot be generated
SPEEDS = ("exact", "fast")  # of conf/speed
SYSTEMS = ("plain", *SPEEDS)
KINDS = ("training", "evaluation")


@dataclass(frozen=True)
class Settings:
    """The part of a protocol (conf/protocol) that one repeat times."""

    batch: int  # documents, in training and in evaluation
    steps: int  # of training
    plain_steps: int  # of the baseline's training
    evaluated: int  # batches
    larger: tuple[int, ...] = ()  # more batch sizes for the peak memory of speed=exact


if DEVICE.type == "cuda":  # it does these steps in seconds; fewer would time its start
    ARXIV_DOCUMENTS = 3_500  # generated for training
    SETTINGS = {
        "agnews": Settings(batch=64, steps=300, plain_steps=60, evaluated=100),
        "imdb": Settings(batch=64, steps=100, plain_steps=20, evaluated=60),
        "arxiv": Settings(batch=64, steps=50, plain_steps=10, evaluated=12),
    }
else:
    ARXIV_DOCUMENTS = 300
    SETTINGS = {
        "agnews": Settings(batch=64, steps=10, plain_steps=1, evaluated=30),
        "imdb": Settings(batch=64, steps=6, plain_steps=1, evaluated=4),
        "arxiv": Settings(batch=2, steps=4, plain_steps=1, evaluated=2, larger=(64,)),
    }


def config(name: str, system: str, folder: Path, cache: str) -> Config:
    """The protocol with the sinusoidal table added; the baseline has that of speed=exact."""
    cfg = harness.config(
        f"data={name}", f"protocol={name}", f"speed={'exact' if system == 'plain' else system}",
        "encoding=sinusoidal", "fusion=add", f"data.path={folder}", f"cache_dir={cache}",
        f"output_dir={cache}", f"data.batch_size={SETTINGS[name].batch}", "trainer.max_epochs=1",
        "logger=none",
    )  # fmt: skip
    cfg.trainer.precision = precision.precision_of(cfg)  # as posfuse train does
    return cfg


def with_sizes(cfg: Config, **sizes: int) -> Config:
    return replace(cfg, data=replace(cfg.data, **sizes))


def train_posfuse(cfg: Config) -> None:
    """A step and an evaluation batch of the longest documents."""
    systems.Posfuse(cfg, 1, 1, systems.longest).epoch()


def train_plain(cfg: Config, *given: Any) -> None:
    """A step and an evaluation batch: all documents are padded to the same length."""
    systems.Plain(cfg, *given).epoch(cfg.data.batch_size, cfg.data.batch_size)


def shuffled(split: Split, numbers: np.ndarray) -> tuple[list[str], list[int]]:
    """Texts and labels of these documents, in random order."""
    documents = split.take(np.sort(numbers))
    texts, order = list(documents.texts()), np.random.default_rng(0).permutation(len(numbers))
    return [texts[i] for i in order], documents.labels[order].tolist()


def measure_corpus(name: str, folder: Path, repeats: int) -> dict[str, Any]:
    """Rates of every repeat and peak memory, by system; the FLOPs of a document."""
    settings = SETTINGS[name]
    with tempfile.TemporaryDirectory() as cache, ExitStack() as stack:
        configs = {system: config(name, system, folder, cache) for system in SYSTEMS}
        cfg = configs["plain"]
        sizes = settings.steps, settings.evaluated
        timed = {s: with_sizes(configs[s], eval_batch_size=settings.batch) for s in SPEEDS}
        chosen = systems.Posfuse(timed["exact"], *sizes)
        parts, names = splits(load(cfg.data), cfg.data)
        limits = cfg.data.vocabulary
        words = plain.vocabulary(parts["train"].texts(), limits.max_size, limits.min_count)
        texts = {split: shuffled(parts[split], of) for split, of in chosen.members.items()}
        baseline = (cfg, words, len(names), texts)
        makes: dict[str, Any] = {"plain": (systems.Plain, *baseline)}
        makes |= {speed: (systems.Posfuse, timed[speed], *sizes) for speed in SPEEDS}
        processes = {s: stack.enter_context(harness.apart(*makes[s])) for s in SYSTEMS}
        rates = rounds(name, settings, processes, repeats)
        memory = [(settings.batch, "plain", harness.peak(train_plain, *baseline))]
        for speed in SPEEDS:
            memory.append((settings.batch, speed, harness.peak(train_posfuse, configs[speed])))
        for batch in settings.larger:
            larger = with_sizes(configs["exact"], batch_size=batch)
            memory.append((batch, "exact", harness.peak(train_posfuse, larger)))
    return {
        "rates": rates,
        "peak_bytes": memory,
        "tokens": float(chosen.data.documents["train"].lengths.mean()),
        "tokens_of_corpus": float(chosen.corpus["train"].lengths.mean()),
        "vocabulary_size": {"plain": len(words) + 2, "posfuse": chosen.data.store.vocabulary_size},
    }


def rounds(
    name: str, settings: Settings, processes: dict[str, Any], repeats: int
) -> dict[str, list[systems.Rates]]:
    """Rates of the systems, which take turns after one uncounted step each."""

    def turn(system: str) -> systems.Rates:
        steps = (settings.plain_steps * settings.batch,) if system == "plain" else ()
        rates: systems.Rates = processes[system](system_epoch, *steps)
        print(name, system, *(f"{k} {rates[k]:.2f} docs/s" for k in KINDS), sep=", ", flush=True)
        return rates

    for system, process in processes.items():
        process(system_epoch, *((2, 2) if system == "plain" else (1,)))
    return harness.in_turn({system: partial(turn, system) for system in processes}, repeats)


def system_epoch(system: Any, *arguments: int) -> systems.Rates:
    rates: systems.Rates = system.epoch(*arguments)
    return rates


def tables(measured: dict[str, dict[str, Any]]) -> list[store.Table]:
    speeds, memory = [], []
    for name, found in measured.items():
        (_, _, plain_bytes), *_ = found["peak_bytes"]
        for system in found["rates"]:
            cells = []
            for kind in KINDS:
                by_system = {s: [rates[kind] for rates in of] for s, of in found["rates"].items()}
                ratio = harness.median_ratio(by_system, system, "plain")
                cells += [statistics.median(by_system[system]), f"{ratio:.3g}×"]
            used = next(b for _, of, b in found["peak_bytes"] if of == system)
            tokens = found["tokens"]
            speeds.append([name, tokens, system, *cells, used / 1e9, f"{used / plain_bytes:.2f}×"])
        memory += [[name, batch, system, b / 1e9] for batch, system, b in found["peak_bytes"]]
    return [
        store.table(
            "Against the plain baseline",
            ["settings", "tokens", "system", "training docs/s", "× plain", "evaluation docs/s",
             "× plain", "peak memory GB", "× plain"],
            speeds,
            "`plain` is benchmarks/plain.py, `exact` and `fast` are posfuse with `speed=exact` "
            "(float32, the protocol's dropout) and `speed=fast` (no dropout inside attention, and "
            "bfloat16 mixed precision where it is faster); the fusion is add. All systems get the "
            "same documents, model, protocol and threads. They take turns, each in its own "
            "process; rates and ratios are medians over the repeats. posfuse's training includes "
            "its diagnostics, on 8 documents per epoch, but not its checkpoints, because the "
            "baseline has none. In evaluation the baseline uses torch's fast path, which skips "
            "padding. ArXiv's documents are generated. Its batch size on a CPU, 2, is the largest "
            "with which the baseline fits into 24 GB; on a GPU it is the authors', 64.",
        ),
        store.table(
            "Peak memory",
            ["settings", "batch", "system", "GB"],
            memory,
            "Peak of a process that does one training step on the longest documents and evaluates "
            "the longest ones, posfuse with its usual evaluation batch.",
        ),
    ]  # fmt: skip


def measure(given: argparse.Namespace) -> tuple[list[store.Table], Any]:
    do_without_broken_amx()  # ahead of any product
    measured = {}
    with tempfile.TemporaryDirectory() as generated:
        folders = {"agnews": given.agnews, "imdb": given.imdb, "arxiv": Path(generated)}
        for name in given.settings:
            if folders[name] is None:
                print(f"{name}: skipped, no folder; give --{name} FOLDER", flush=True)
                continue
            if name == "arxiv":
                generated_texts.write_arxiv(folders[name], ARXIV_DOCUMENTS)
            measured[name] = measure_corpus(name, folders[name], given.repeats)
    return tables(measured), measured


if __name__ == "__main__":
    store.main(__file__, measure, settings=list(SETTINGS), repeats=3)
