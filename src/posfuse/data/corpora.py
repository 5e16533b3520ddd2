"""Corpora: where texts and labels come from, and how they are checked and split.

A corpus function returns a `Corpus`; its arguments stand in one file of conf/data.
"""

import hashlib
import logging
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.model_selection import train_test_split

from posfuse.config import DataConfig
from posfuse.errors import InputError

SPLITS = ("train", "validation", "test")
READERS: dict[str, Callable[[Path], pd.DataFrame]] = {
    ".parquet": pd.read_parquet,
    # "NA" and "null" are words; only an empty field is missing.
    ".csv": lambda path: pd.read_csv(
        path, dtype={"text": str}, keep_default_na=False, na_values=[""]
    ),
    ".jsonl": lambda path: pd.read_json(path, lines=True, dtype=False, convert_dates=False),
}
Frames = dict[str, pd.DataFrame]  # by split: columns text, label; attrs["source"] says where from


@dataclass(frozen=True)
class Corpus:
    """Texts and labels by split, read only when no token ids of them are cached."""

    fingerprint: str  # of everything that `read` depends on
    read: Callable[[], Frames]
    label_names: list[str] | None = None  # names of the labels 0..C-1, where the source has them


def load(cfg: DataConfig) -> Corpus:
    """The configured corpus: the local folder where one is named, else the corpus function."""
    if cfg.path is not None:
        return folder(cfg.path)
    assert cfg.corpus is not None  # checks.checked sees to it
    arguments = {key: value for key, value in cfg.corpus.items() if key != "_target_"}
    corpus: Corpus = pkgutil.resolve_name(cfg.corpus["_target_"])(**arguments)
    return corpus


def folder(path: str) -> Corpus:
    """A local folder with train|validation|test.(parquet|csv|jsonl) of `text` and `label`."""
    files = folder_files(path)
    return Corpus(files_digest(files), lambda: {s: _read_file(f) for s, f in files.items()})


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
    """sha256 over the bytes of the files."""
    digest = hashlib.sha256()
    for split, path in files.items():
        digest.update(f"{split}{path.suffix}".encode())
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


def _read_file(path: Path) -> pd.DataFrame:
    try:
        frame = READERS[path.suffix](path)
    except Exception as error:  # each reader has exceptions of its own; all mean: not readable
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"{path}: not readable ({reason}); write the file anew") from error
    frame.attrs["source"] = str(path)
    return frame


def hub(id: str, revision: str = "main") -> Corpus:
    """A corpus of the Hugging Face hub, or a local folder in the hub's form."""
    import datasets

    datasets.disable_progress_bars()
    # Or each of the hub's retries writes two lines.
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)
    try:
        loaded = datasets.load_dataset(id, revision=None if Path(id).is_dir() else revision)
    except Exception as error:  # network, cache and repository errors have no common ancestor
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(
            f"data.corpus.id: cannot load {id!r} from the hub ({reason}); with no network, put "
            "train.parquet and test.parquet (columns text, label) in a folder and give "
            "data.path=FOLDER"
        ) from error
    parts = {s: loaded[s] for s in SPLITS if s in loaded}
    if "train" not in parts or "test" not in parts:
        raise InputError(f"data.corpus.id: {id!r} has splits {', '.join(loaded)}, not train, test")
    label = parts["train"].features.get("label")

    def read() -> Frames:
        frames = {}
        for split, part in parts.items():
            frames[split] = part.to_pandas()
            frames[split].attrs["source"] = f"{id} ({split})"
        return frames

    # The Arrow files' names hold the revision's commit: another download is another fingerprint.
    arrow = [Path(f["filename"]) for part in parts.values() for f in part.cache_files]
    files = [(*path.parts[-3:], path.stat().st_size) for path in arrow]
    return Corpus(f"{id}@{revision} {files}", read, getattr(label, "names", None))


def splits(
    corpus: Corpus, cfg: DataConfig, validation_seed: int | None = None
) -> tuple[Frames, list[str]]:
    """Read, check, map labels to 0..C-1 and split; returns the frames and the labels' names.
    `validation_seed` is `open_store`'s."""
    frames = {split: _checked(frame, cfg.drop_empty) for split, frame in corpus.read().items()}
    names = _map_labels(frames, corpus.label_names)
    if "validation" not in frames:
        validation = max(round(len(frames["train"]) * cfg.validation_fraction), 1)
        seed = cfg.split_seed if validation_seed is None else validation_seed
        frames["train"], frames["validation"] = stratified(frames["train"], validation, seed)
    if cfg.limit is not None:
        for split, frame in frames.items():
            if len(frame) > cfg.limit:
                frames[split] = stratified(frame, cfg.limit, cfg.split_seed)[1]
    return {split: frames[split].reset_index(drop=True) for split in SPLITS}, names


def stratified(frame: pd.DataFrame, size: int, seed: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Split off `size` documents with every class in proportion; both parts keep their order."""
    try:
        rest, part = train_test_split(
            frame, test_size=size, stratify=frame["label"], random_state=seed
        )
    except ValueError as error:
        source = frame.attrs.get("source", "corpus")
        raise InputError(
            f"{source}: cannot take {size} of {len(frame)} documents with every class in "
            f"proportion ({error}); add documents, or a validation file"
        ) from error
    return rest.sort_index(), part.sort_index()


def _checked(frame: pd.DataFrame, drop_empty: bool) -> pd.DataFrame:
    """The frame's text and label, each document with words and a label."""
    source = frame.attrs["source"]
    for column in ("text", "label"):
        if column not in frame:
            has = ", ".join(map(str, frame.columns)) or "none"
            raise InputError(f"{source}: no column {column!r} among {has}; rename the one you mean")
    frame = frame[["text", "label"]]
    no_label = frame["label"].isna().to_numpy(bool)
    if no_label.any():
        row = int(no_label.argmax())
        raise InputError(f"{source}: no label in row {row}; label it or remove the row")
    texts = frame["text"].tolist()
    missing = frame["text"].isna().to_numpy(bool)
    for row, (text, is_missing) in enumerate(zip(texts, missing, strict=True)):
        if not isinstance(text, str) and not is_missing:
            raise InputError(f"{source}: text in row {row} is {text!r}; make it a string")
    empty = np.array([not isinstance(t, str) or not t.strip() for t in texts], dtype=bool)
    if empty.any() and not drop_empty:
        raise InputError(
            f"{source}: no text in row {empty.argmax()} ({empty.sum()} such rows); remove them or "
            "set data.drop_empty=true"
        )
    frame = frame[~empty].reset_index(drop=True)
    if frame.empty:
        raise InputError(f"{source}: no documents; give at least one of each class")
    frame.attrs["source"] = source
    return frame


def _map_labels(frames: Frames, given: list[str] | None) -> list[str]:
    """Replace labels by 0..C-1 in place; strings and other integers by their sorted order."""
    train = frames["train"]
    source = train.attrs["source"]
    kinds = {type(v).__name__ for f in frames.values() for v in f["label"].tolist()}
    if kinds not in ({"int"}, {"str"}):
        raise InputError(
            f"{source}: labels are of type {', '.join(sorted(kinds))}; use integers or strings"
        )
    values = sorted(train["label"].unique().tolist())
    if len(values) < 2:
        raise InputError(f"{source}: one class only, {values[0]!r}; give at least two")
    for split, frame in frames.items():
        strange = ~frame["label"].isin(values).to_numpy(bool)
        if strange.any():
            row = int(strange.argmax())
            raise InputError(
                f"{frame.attrs['source']}: class {frame['label'].tolist()[row]!r} in row {row} is "
                f"not in the training split; add it there or remove it from {split}, or let a "
                "generated corpus have more training documents"
            )
        frame["label"] = frame["label"].map({v: i for i, v in enumerate(values)}).astype("int64")
    if given is not None and all(isinstance(v, int) and 0 <= v < len(given) for v in values):
        return [given[v] for v in values]
    return [str(v) for v in values]
