"""Time training and evaluation against the plain baseline, on the same documents.

    python benchmarks/training.py --agnews FOLDER --imdb FOLDER

In each repeat the systems take turns, each in its own process, because memory allocation and the
allowed algorithms are part of a system. posfuse's epoch is a few batches that represent the corpus:
the batches of the real epoch are sorted by length and divided into equal parts, and the middle of
each part is taken. The baseline trains on documents of these batches, since its time per document
does not depend on length, and evaluates the same documents as posfuse. Peak memory is measured in a
process that does nothing else.
"""

import multiprocessing
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from hydra import compose, initialize_config_dir

import arxiv_path
import plain
import results
import timing
import training_tables
from posfuse.config import CONF_DIR, Config
from posfuse.data.corpora import load
from posfuse.data.splits import Split, splits
from posfuse.process import precision
from posfuse.process.environment import do_without_broken_amx, peak_memory
from posfuse.runs.checks import checked
from systems import DEVICE, Plain, Posfuse, Rates, Texts, longest, product_flops

MEASURES = (
    "model.network model.fusion model.encoder model.attention model.kernels model.dropout "
    "model.attention_encoding model.encoding data.batching data.datamodule training.build "
    "training.module training.classifier training.diagnostics training.history "
    "process.environment process.precision conf/protocol conf/speed"
)
FOLDERS = ("agnews", "imdb")  # of corpora that cannot be generated
SPEEDS = ("exact", "fast")  # of conf/speed
NUMBERS = {"32-true": "float32", "bf16-mixed": "bfloat16"}  # of a precision's products
SYSTEMS = ("plain", *SPEEDS)
ARXIV_DOCUMENTS = 3_500 if DEVICE.type == "cuda" else 300  # generated for training


@dataclass(frozen=True)
class Settings:
    """The part of a protocol (conf/protocol) that one repeat times."""

    batch: int  # documents, in training and in evaluation
    steps: int  # of training
    plain_steps: int  # of the baseline's training
    evaluated: int  # batches
    larger: tuple[int, ...] = ()  # more batch sizes for the peak memory of speed=exact


SETTINGS = {
    "agnews": Settings(batch=64, steps=10, plain_steps=1, evaluated=30),
    "imdb": Settings(batch=64, steps=6, plain_steps=1, evaluated=4),
    "arxiv": Settings(batch=2, steps=4, plain_steps=1, evaluated=2, larger=(64,)),
}
GPU_SETTINGS = {  # a GPU does these steps in seconds, and fewer would time its start
    "agnews": Settings(batch=64, steps=300, plain_steps=60, evaluated=100),
    "imdb": Settings(batch=64, steps=100, plain_steps=20, evaluated=60),
    "arxiv": Settings(batch=64, steps=50, plain_steps=10, evaluated=12),
}
if DEVICE.type == "cuda":
    SETTINGS = GPU_SETTINGS


def config(name: str, system: str, folder: Path, cache: Path) -> Config:
    """The protocol with the sinusoidal table added; the baseline has that of speed=exact."""
    speed = system if system in SPEEDS else "exact"
    overrides = [
        f"data={name}", f"protocol={name}", f"speed={speed}",
        "encoding=sinusoidal", "fusion=add", f"data.path={folder}", f"cache_dir={cache}",
        f"output_dir={cache}",
        f"data.batch_size={SETTINGS[name].batch}", "trainer.max_epochs=1", "trainer.progress=none",
        "logger=none",
    ]  # fmt: skip
    with initialize_config_dir(str(CONF_DIR), version_base="1.3"):
        cfg = checked(compose("train", overrides))
    cfg.trainer.precision = precision.chosen(cfg)  # as posfuse-train does
    return cfg


def with_sizes(cfg: Config, **sizes: int) -> Config:
    return replace(cfg, data=replace(cfg.data, **sizes))


def peak(threads: int, work: Callable[[], Any] | None) -> int:
    """Peak memory in bytes of a process that does only this work, or only imports (None)."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        return process.submit(_peak, threads, work).result()


def _peak(threads: int, work: Callable[[], Any] | None) -> int:
    torch.set_num_threads(threads)
    if work is not None:
        work()
    return peak_memory()


@contextmanager
def apart(threads: int, make: Callable[[], Any]) -> Iterator[Callable[..., Rates]]:
    """The `epoch` method of the object that `make` returns, in its own process."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, context, _begin, (threads, make)) as process:
        yield lambda *arguments: process.submit(_epoch, *arguments).result()


_system: Any  # of a process that `apart` started


def _begin(threads: int, make: Callable[[], Any]) -> None:
    global _system
    torch.set_num_threads(threads)
    _system = make()


def _epoch(*arguments: int) -> Rates:
    rates: Rates = _system.epoch(*arguments)
    return rates


def train_posfuse(cfg: Config) -> None:
    """A step and an evaluation batch of the longest documents."""
    Posfuse(cfg, 1, 1, longest).epoch()


def train_plain(cfg: Config, words: dict[str, int], n_classes: int, texts: Texts) -> None:
    """A step and an evaluation batch: all documents are padded to the same length."""
    Plain(cfg, words, n_classes, texts).epoch(cfg.data.batch_size, cfg.data.batch_size)


def measure(name: str, folder: Path, repeats: int) -> dict[str, Any]:
    """Rates of every repeat and peak memory, by system; the FLOPs of a document."""
    settings = SETTINGS[name]
    with tempfile.TemporaryDirectory() as cache:
        configs = {system: config(name, system, folder, Path(cache)) for system in SYSTEMS}
        cfg = configs["plain"]
        makes: dict[str, Callable[[], Any]] = {
            speed: partial(
                Posfuse,
                with_sizes(configs[speed], eval_batch_size=settings.batch),
                settings.steps,
                settings.evaluated,
            )
            for speed in SPEEDS
        }
        chosen = makes["exact"]()
        parts, names = splits(load(cfg.data), cfg.data)
        limits = cfg.data.vocabulary
        words = plain.vocabulary(parts["train"].texts(), limits.max_size, limits.min_count)
        texts = {split: shuffled(parts[split], of) for split, of in chosen.members.items()}
        makes["plain"] = partial(Plain, cfg, words, len(names), texts)
        threads = torch.get_num_threads()
        with ExitStack() as processes:
            epochs = {
                system: processes.enter_context(apart(threads, makes[system])) for system in SYSTEMS
            }
            numbers = {system: NUMBERS[configs[system].trainer.precision] for system in SYSTEMS}
            rates = timed(name, settings, epochs, repeats, numbers)
        work = {"plain": partial(train_plain, cfg, words, len(names), texts)}
        work |= {speed: partial(train_posfuse, configs[speed]) for speed in SPEEDS}
        memory = [(settings.batch, system, peak(threads, work[system])) for system in SYSTEMS]
        for batch in settings.larger:
            larger = partial(train_posfuse, with_sizes(configs["exact"], batch_size=batch))
            memory.append((batch, "exact", peak(threads, larger)))
    lengths = chosen.data.documents["train"].lengths
    return {
        "rates": rates,
        "numbers": numbers,
        "peak_bytes": memory,
        "forward_flops": product_flops(lengths, cfg.model, len(names)) / len(lengths),
        "tokens": float(lengths.mean()),
        "tokens_of_corpus": float(chosen.corpus["train"].lengths.mean()),
        "vocabulary_size": {"plain": len(words) + 2, "posfuse": chosen.data.store.vocabulary_size},
    }


def shuffled(split: Split, numbers: np.ndarray) -> tuple[list[str], list[int]]:
    """Texts and labels of these documents, in random order."""
    documents = split.take(np.sort(numbers))
    texts, order = list(documents.texts()), np.random.default_rng(0).permutation(len(numbers))
    return [texts[i] for i in order], documents.labels[order].tolist()


def timed(
    name: str,
    settings: Settings,
    epochs: dict[str, Callable[..., Rates]],
    repeats: int,
    numbers: dict[str, str],
) -> dict[str, list[Rates]]:
    """Rates of the systems, which take turns after one uncounted step each. "products" is the
    machine's rate, FLOP/s, with the system's number type."""
    first: dict[str, tuple[int, ...]] = dict.fromkeys(SPEEDS, (1,))
    whole: dict[str, tuple[int, ...]] = dict.fromkeys(SPEEDS, ())
    first["plain"], whole["plain"] = (2, 2), (settings.plain_steps * settings.batch,)
    for system, epoch in epochs.items():
        epoch(*first[system])
    rates: dict[str, list[Rates]] = {system: [] for system in epochs}
    for _ in range(repeats):
        for system, epoch in epochs.items():
            rates[system].append(epoch(*whole[system]))
            kind = getattr(torch, numbers[system])
            # At every turn, because the speed of a shared machine changes within minutes.
            rates[system][-1]["products"] = timing.product_rate(kind, DEVICE)
            shown = (f"{k} {rates[system][-1][k]:.2f} docs/s" for k in ("training", "evaluation"))
            print(name, system, *shown, sep=", ", flush=True)
    return rates


def main() -> None:
    parser = results.parser(__file__, __doc__)
    for name in FOLDERS:
        parser.add_argument(f"--{name}", type=results.folder, help="folder, as data.path takes it")
    parser.add_argument("--settings", nargs="+", choices=SETTINGS, default=list(SETTINGS))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, help="torch's own choice unless given")
    arguments = parser.parse_args()
    do_without_broken_amx()  # ahead of any product
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    measured = {}
    with tempfile.TemporaryDirectory() as generated:
        folders = {"agnews": arguments.agnews, "imdb": arguments.imdb, "arxiv": Path(generated)}
        for name in arguments.settings:
            if folders[name] is None:
                print(f"{name}: skipped, no folder; give --{name} FOLDER", flush=True)
                continue
            if name == "arxiv":
                for split, frame in arxiv_path.generated(ARXIV_DOCUMENTS):
                    frame.to_parquet(folders[name] / f"{split}.parquet", index=False)
            measured[name] = measure(name, folders[name], arguments.repeats)
    # On a GPU imports take none of its memory.
    imports = peak(torch.get_num_threads(), None) if DEVICE.type == "cpu" else 0
    raw = {"settings": measured, "imports_bytes": imports}
    found = training_tables.tables(measured, imports)
    results.write(arguments, found, raw, folders=measured.keys() & FOLDERS)


if __name__ == "__main__":
    main()
