"""Corpora: where texts and labels come from, and how they are checked and split.

A corpus function returns a `Corpus`; its arguments stand in one file of conf/data.
"""

import hashlib
import logging
import pkgutil
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from posfuse.config import DataConfig
from posfuse.data.labels import check_labels, wrong_kinds
from posfuse.data.sources import (
    READERS,
    Source,
    in_file,
    in_hub_form,
    in_memory,
    raise_lack_of_memory,
)
from posfuse.errors import HubUnreachable, InputError

SPLITS = ("train", "validation", "test")
SETTLED = 2.0  # seconds after which a file that changes has another time of change
_without_hub: list[bool] = []  # not empty: after `do_without_hub`
Frames = dict[str, pd.DataFrame]  # by split: columns text, label; attrs["source"] says where from


@dataclass(frozen=True)
class Corpus:
    """Texts and labels by split, read only when no token ids of them are cached."""

    fingerprint: str  # of everything that `read` depends on
    read: Callable[[], Frames | Mapping[str, Source]]  # sources for what memory need not hold
    label_names: list[str] | None = None  # names of the labels 0..C-1, where the source has them


@dataclass(frozen=True)
class Split:
    """Documents of a source: labels in memory, texts read anew each time they are asked for."""

    source: Source
    rows: np.ndarray  # (documents,) of the source, ascending
    labels: np.ndarray  # (documents,)

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, chosen: np.ndarray) -> "Split":
        """The documents at these places."""
        return replace(self, rows=self.rows[chosen], labels=self.labels[chosen])

    def texts(self) -> Iterator[str]:
        """The texts in order."""
        start = 0
        for part in self.source.read("text"):
            first, last = np.searchsorted(self.rows, [start, start + len(part)])
            yield from part.iloc[self.rows[first:last] - start].tolist()
            start += len(part)


def load(cfg: DataConfig) -> Corpus:
    """The configured corpus: the local folder where one is named, else the corpus function."""
    if cfg.path is not None:
        return folder(cfg.path)
    assert cfg.corpus is not None  # checks.checked sees to it
    arguments = {key: value for key, value in cfg.corpus.items() if key != "_target_"}
    corpus: Corpus = pkgutil.resolve_name(cfg.corpus["_target_"])(**arguments)
    return corpus


def folder(path: str) -> Corpus:
    """A local folder with train|validation|test.(parquet|csv|jsonl) of `text` and `label`.

    CSV files have no types: their labels are integers if every label is one as str() writes it,
    else strings, so that 01 and 1 are two classes.
    """
    files = folder_files(path)
    return Corpus(files_digest(files), lambda: {s: in_file(f) for s, f in files.items()})


def folder_files(path: str) -> dict[str, Path]:
    """The folder's file of each split; train and test must be there."""
    root = Path(path)
    if not root.is_dir():
        raise InputError(f"data.path: no folder {root}; give one with train.parquet, test.parquet")
    files = {}
    for split in SPLITS:
        found = [root / f"{split}{end}" for end in READERS if (root / f"{split}{end}").is_file()]
        if len(found) > 1:
            raise InputError(f"{found[0]}: {found[1].name} lies beside it; keep one of the two")
        if found:
            files[split] = found[0]
    for split in ("train", "test"):
        if split not in files:
            raise InputError(f"{root}: no {split} split; add {split}.parquet, .csv or .jsonl")
    return files


def files_digest(files: dict[str, Path]) -> str:
    """sha256 over the bytes of the files; those that stay as they are are read once a process."""
    digest = hashlib.sha256()
    for split, path in files.items():
        digest.update(f"{split}{path.suffix}".encode())
        state = path.stat()
        is_settled = time.time() - state.st_mtime > SETTLED
        content = _content if is_settled else _content.__wrapped__
        digest.update(content(path.resolve(), state.st_size, state.st_mtime_ns))
    return digest.hexdigest()


@lru_cache
def _content(path: Path, size: int, changed: int) -> bytes:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()


def hub(id: str, revision: str = "main") -> Corpus:
    """A corpus of the Hugging Face hub, or a local folder in the hub's form."""
    import datasets

    datasets.disable_progress_bars()
    # Or each of the hub's retries writes two lines.
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)
    try:
        loaded = datasets.load_dataset(id) if Path(id).is_dir() else _from_hub(id, revision)
    except Exception as error:  # network, cache and repository errors have no common ancestor
        raise_lack_of_memory(error)
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        is_unreachable = isinstance(error, ConnectionError)
        if is_unreachable and _without_hub:
            reason = "out of reach in an earlier run of this sweep, not asked again"
        raise (HubUnreachable if is_unreachable else InputError)(
            f"data.corpus.id: cannot load {id!r} from the hub ({reason}); with no network, put "
            "train.parquet and test.parquet (columns text, label) in a folder and give "
            "data.path=FOLDER"
        ) from error
    parts = {s: loaded[s] for s in SPLITS if s in loaded}
    if "train" not in parts or "test" not in parts:
        raise InputError(f"data.corpus.id: {id!r} has splits {', '.join(loaded)}, not train, test")
    label = parts["train"].features.get("label")

    def read() -> dict[str, Source]:
        return {split: in_hub_form(part, f"{id} ({split})") for split, part in parts.items()}

    # The Arrow files' names hold the revision's commit: another download is another fingerprint.
    arrow = [Path(f["filename"]) for part in parts.values() for f in part.cache_files]
    files = [(*path.parts[-3:], path.stat().st_size) for path in arrow]
    return Corpus(f"{id}@{revision} {files}", read, getattr(label, "names", None))


@lru_cache
def _from_hub(id: str, revision: str) -> Any:
    """The corpus in the hub's form. A process loads it once: without network the library retries
    for 23 s, and does so for a corpus in its local cache too."""
    import datasets

    return datasets.load_dataset(id, revision=revision)


def do_without_hub() -> None:
    """Take corpora from the hub's local cache alone, for as long as this process lives."""
    import datasets

    datasets.config.HF_HUB_OFFLINE = True
    _without_hub.append(True)


def splits(
    corpus: Corpus, cfg: DataConfig, validation_seed: int | None = None
) -> tuple[dict[str, Split], list[str]]:
    """Read, check, map labels to 0..C-1 and split; returns the splits and the labels' names.
    `validation_seed` is `open_store`'s."""
    parts = {split: _checked(given, cfg.drop_empty) for split, given in corpus.read().items()}
    names = _map_labels(parts, corpus.label_names)
    if "validation" not in parts:
        validation = max(round(len(parts["train"]) * cfg.validation_fraction), 1)
        seed = cfg.split_seed if validation_seed is None else validation_seed
        rest, taken = _drawn(parts["train"], validation, seed, names, cfg.validation_stratified)
        parts["train"], parts["validation"] = rest, taken
    if cfg.limit is not None:
        for split, part in parts.items():
            if len(part) > cfg.limit:
                parts[split] = _drawn(part, cfg.limit, cfg.split_seed, names)[1]
    return {split: parts[split] for split in SPLITS}, names


def _drawn(
    part: Split, size: int, seed: int, names: list[str], stratified: bool = True
) -> tuple[Split, Split]:
    alone = [names[c] for c, n in enumerate(np.bincount(part.labels)) if n == 1]
    if alone and stratified:
        raise InputError(
            f"{part.source.name}: cannot take {size} of {len(part)} documents with every class in "
            f"proportion: class {alone[0]!r} has one document; add another to it, remove it, or "
            "give a validation file and no data.limit"
        )
    rest, taken = _split_off(part.labels, size, seed, part.source.name, stratified)
    return part.take(rest), part.take(taken)


def stratified(frame: pd.DataFrame, size: int, seed: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Split off `size` documents with every class in proportion; both parts keep their order."""
    source = frame.attrs.get("source", "corpus")
    rest, taken = _split_off(frame["label"].to_numpy(), size, seed, source)
    return frame.iloc[rest], frame.iloc[taken]


def _split_off(
    labels: np.ndarray, size: int, seed: int, source: str, stratified: bool = True
) -> tuple[np.ndarray, np.ndarray]:
    """Places of the documents that stay and of the `size` that are taken, both ascending."""
    from sklearn.model_selection import train_test_split  # a second, where ids are built alone

    try:
        rest, taken = train_test_split(
            np.arange(len(labels)),
            test_size=size,
            stratify=labels if stratified else None,
            random_state=seed,
        )
    except ValueError as error:
        proportion = " with every class in proportion" if stratified else ""
        raise InputError(
            f"{source}: cannot take {size} of {len(labels)} documents{proportion} ({error}); add "
            "documents, or a validation file"
        ) from error
    return np.sort(rest), np.sort(taken)


def _checked(given: pd.DataFrame | Source, drop_empty: bool) -> Split:
    """Its documents, each with words and a label."""
    source = in_memory(given) if isinstance(given, pd.DataFrame) else given
    for column in ("text", "label"):
        if source.columns.count(column) > 1:
            raise InputError(
                f"{source.name}: {source.columns.count(column)} columns are named {column!r}; "
                "rename or remove all but one"
            )
        if column not in source.columns:
            has = ", ".join(map(str, source.columns)) or "none"
            raise InputError(
                f"{source.name}: no column {column!r} among {has}; rename the one you mean"
            )
    read = [*source.read("label")]
    labels = pd.concat(read) if read else pd.Series(dtype=object)
    check_labels(source.name, labels)
    empty = np.fromiter(_is_empty(source), bool)
    if empty.any() and not drop_empty:
        raise InputError(
            f"{source.name}: no text in row {empty.argmax()} ({empty.sum()} such rows); remove "
            "them or set data.drop_empty=true"
        )
    rows = np.flatnonzero(~empty)
    if not len(rows):
        raise InputError(f"{source.name}: no documents; give at least one of each class")
    return Split(source, rows, labels.to_numpy()[rows])


def _is_empty(source: Source) -> Iterator[bool]:
    """Whether each document is without words; raises InputError for what is no text."""
    row = 0
    for part in source.read("text"):
        for text, is_missing in zip(part.tolist(), part.isna(), strict=True):
            if not isinstance(text, str) and not is_missing:
                raise InputError(f"{source.name}: text in row {row} is {text!r}; make it a string")
            yield is_missing or not text.strip()
            row += 1


def _map_labels(parts: dict[str, Split], given: list[str] | None) -> list[str]:
    """Replace labels by 0..C-1 in place, in the sorted order of their values."""
    if any(isinstance(v, str) for part in parts.values() for v in part.labels.tolist()):
        for split, part in parts.items():
            if not part.source.has_types:  # integers in this file alone; str() gives their spelling
                spelt = np.array([str(v) for v in part.labels.tolist()], dtype=object)
                parts[split] = replace(part, labels=spelt)
    train = parts["train"]
    kinds = {type(v).__name__ for part in parts.values() for v in part.labels.tolist()}
    if len(kinds) > 1:
        raise wrong_kinds(train.source.name, kinds)
    values = sorted(set(train.labels.tolist()))
    if len(values) < 2:
        raise InputError(f"{train.source.name}: one class only, {values[0]!r}; give at least two")
    for split, part in parts.items():
        labels = pd.Series(part.labels)
        strange = ~labels.isin(values).to_numpy(bool)
        if strange.any():
            place = int(strange.argmax())
            raise InputError(
                f"{part.source.name}: class {labels.tolist()[place]!r} in row {part.rows[place]} "
                f"is not in the training split; add it there or remove it from {split}, or let a "
                "generated corpus have more training documents"
            )
        mapped = labels.map({v: i for i, v in enumerate(values)}).to_numpy(np.int64)
        parts[split] = replace(part, labels=mapped)
    if given is not None and all(isinstance(v, int) and 0 <= v < len(given) for v in values):
        return [given[v] for v in values]
    return [str(v) for v in values]
