"""Checks and splits a corpus. Every document gets a text and a label 0..C-1."""

import inspect
import re
import reprlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from posfuse.config import DataConfig
from posfuse.data.corpora import SPLITS, Corpus, Poll
from posfuse.data.names import canonical, check_distinct
from posfuse.data.sources import ROWS, Source, frame_source
from posfuse.errors import InputError, input_errors, lacks_memory

INTEGER = re.compile(r"0|-?[1-9][0-9]{0,17}")  # as str() writes integers that fit into int64
CURE = "give a validation file, or change data.validation_fraction or data.validation_stratified"
LABEL_TYPES = {"int", "str", "bool"}  # names of the Python types that labels may have


@dataclass(frozen=True)
class Split:
    """Documents of a source. Labels are in memory. Each call of `texts` reads the texts again."""

    source: Source
    rows: np.ndarray  # (documents,), rows of the source from 0, ascending
    labels: np.ndarray  # (documents,)
    groups: np.ndarray  # (documents,), equal for documents that share a part

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, chosen: np.ndarray) -> "Split":
        """The documents at these places."""
        rows, labels, groups = (a[chosen] for a in (self.rows, self.labels, self.groups))
        return replace(self, rows=rows, labels=labels, groups=groups)

    def texts(self) -> Iterator[str]:
        start = 0
        for part in self.source.read("text"):
            first, last = np.searchsorted(self.rows, [start, start + len(part)])
            yield from part.iloc[self.rows[first:last] - start].tolist()
            start += len(part)


def splits(
    corpus: Corpus,
    cfg: DataConfig,
    validation_seed: int | None = None,
    labelled: bool = True,
    poll: Poll = lambda: None,
) -> tuple[dict[str, Split], list[str]]:
    """Read, check and split a corpus. Returns the splits and the names of the labels 0..C-1.

    The other arguments are as in `open_store`. Raises InputError for documents that cannot be used.
    """
    try:
        has_poll = "poll" in inspect.signature(corpus.read).parameters
        read = corpus.read(poll=poll) if has_poll else corpus.read()
    except OSError as error:
        if lacks_memory(error):
            raise
        raise InputError(f"{cfg.name}: cannot be read ({error}); correct this file") from error
    if not isinstance(read, Mapping) or "train" not in read:
        raise InputError(
            f"{cfg.name}: `read` of its Corpus must return a dict of DataFrames with the key train "
            "(validation and test are optional)"
        )
    sources = {
        split: part if isinstance(part, Source) else frame_source(part, f"{cfg.name} ({split})")
        for split, part in read.items()
    }
    has_labels = labelled or all(cfg.labels in source.columns for source in sources.values())

    def divided(with_labels: bool) -> tuple[dict[str, Split], list[str]]:
        parts = {
            split: _documents(source, cfg, with_labels, poll) for split, source in sources.items()
        }
        names = _number_labels(parts, corpus.label_names, labelled)
        return _with_all_splits(parts, names, cfg, validation_seed), names

    try:
        parts, names = divided(has_labels)
    except InputError:
        if labelled or not has_labels:
            raise
        # The task needs no labels, and those of this column cannot be classes or be divided.
        parts, names = divided(with_labels=False)
    return {split: parts[split] for split in SPLITS} | parts, names


def _with_all_splits(
    parts: dict[str, Split], names: list[str], cfg: DataConfig, validation_seed: int | None
) -> dict[str, Split]:
    """The splits, with a test and a validation split from train if they are missing, each of at
    most data.limit documents."""
    if "test" not in parts:  # a text in one file
        size = max(round(len(parts["train"]) * cfg.validation_fraction), 1)
        parts["train"], parts["test"] = _divide(parts["train"], size, 0, names)
    if "validation" not in parts:
        size = max(round(len(parts["train"]) * cfg.validation_fraction), 1)
        seed = int(cfg.split_seed) if validation_seed is None else validation_seed
        rest, taken = _divide(parts["train"], size, seed, names, cfg.validation_stratified)
        parts["train"], parts["validation"] = rest, taken
    if cfg.limit is not None:
        for split, part in parts.items():
            if part.source.is_one_text:
                parts[split] = part.take(np.arange(min(cfg.limit, len(part))))
            elif len(part) > cfg.limit:
                cure, seed = "change data.limit, or add documents", int(cfg.split_seed)
                # The rest is not used, but draw_places needs each class in it too.
                stratified = len(part) - cfg.limit >= len(np.unique(part.labels))
                parts[split] = _divide(part, cfg.limit, seed, names, stratified, cure)[1]
    counts = np.bincount(parts["train"].labels, minlength=len(names))
    if not counts.all():
        raise InputError(
            f"{parts['train'].source.name}: no document of class {names[counts.argmin()]!r} "
            f"remains for training; {CURE}, or data.limit"
        )
    return parts


def draw_places(
    n: int, size: int, seed: int, labels: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Draws `size` of n places; with `labels` (n,) every class in proportion. Returns the places
    that remain and the drawn places, both ascending. Raises ValueError if this is impossible."""
    # The import takes a second, and runs with a cache do not need it.
    from sklearn.model_selection import train_test_split

    places = np.arange(n)
    rest, drawn = train_test_split(places, test_size=size, stratify=labels, random_state=seed)
    return np.sort(rest), np.sort(drawn)


def _divide(
    part: Split, size: int, seed: int, names: list[str], stratified: bool = True, cure: str = CURE
) -> tuple[Split, Split]:
    """The documents that remain and the `size` drawn documents; both keep their order. From a
    running text the last `size` documents are taken."""
    if len(part) == 1:
        raise InputError(
            f"{part.source.name}: has too few documents to divide; give a validation "
            "file, or write a long text as several rows, such as its paragraphs"
        )
    if part.source.is_one_text:
        rest, taken = np.split(np.arange(len(part)), [max(len(part) - size, 1)])
        return part.take(rest), part.take(taken)
    problem = f"{part.source.name}: cannot take {size} of {len(part)} documents"
    if stratified:
        problem += " with every class in proportion"
        alone = [names[c] for c, n in enumerate(np.bincount(part.labels)) if n == 1]
        if alone:
            raise InputError(
                f"{problem}: class {alone[0]!r} has one document; add another, remove the class, "
                "or give a validation file and no data.limit"
            )
    with input_errors(problem, cure):
        rest, taken = draw_places(len(part), size, seed, part.labels if stratified else None)
    return part.take(rest), part.take(taken)


def _documents(source: Source, cfg: DataConfig, labelled: bool, poll: Poll) -> Split:
    """The documents of a source. Each has words and a label; without `labelled` the label is empty.
    `poll` is called whenever a part of them is read."""
    if source.is_one_text and labelled:
        raise InputError(
            f"{source.name}: a text without labels; set task=language_model, or give .csv with "
            "text and label"
        )
    if not source.columns:
        raise InputError(f"{source.name}: is empty; give one with {cfg.text} and {cfg.labels}")
    needed = {"text": cfg.text, "labels": cfg.labels} if labelled else {"text": cfg.text}
    for key, column in needed.items():
        if source.columns.count(column) > 1:
            raise InputError(
                f"{source.name}: {source.columns.count(column)} columns are named {column!r}; "
                "rename or remove all but one"
            )
        if column not in source.columns:
            given_names = map(str, source.columns)  # quotes show white space around a name
            has = ", ".join(n if n and n == n.strip() else repr(n) for n in given_names)
            has += f" in the first {ROWS} rows" * source.name.lower().endswith(".jsonl")
            raise InputError(
                f"{source.name}: no column {column!r} among {has}; set data.{key}=COLUMN"
                + ", or task=language_model" * (key == "labels")
            )
    parts_of, names = source.read, {"text": cfg.text, "label": cfg.labels}

    def read(column: str) -> Iterator[pd.Series]:
        for part in parts_of(names[column]):
            poll()
            yield part

    source = replace(source, read=read)
    empty = np.fromiter(_is_empty(source), bool)
    labels = pd.Series([""] * len(empty), dtype=object)
    if labelled:
        columns = [*source.read("label")]
        labels = pd.concat(columns, ignore_index=True) if columns else labels
        _check_labels(source.name, labels[~empty] if cfg.drop_empty else labels)
    if empty.any() and not cfg.drop_empty:
        raise InputError(
            f"{source.name}: no text in row {empty.argmax()} ({empty.sum()} such rows); remove "
            "them or set data.drop_empty=true"
        )
    rows = np.flatnonzero(~empty)
    if not len(rows):
        needs = "one of each class" if labelled else "one with text"
        raise InputError(f"{source.name}: no documents; give at least {needs}")
    groups = rows if source.groups is None else source.groups[rows]
    return Split(source, rows, labels.to_numpy()[rows], groups)


def _is_empty(source: Source) -> Iterator[bool]:
    """True for each document without words. Raises InputError for a text that is not a string."""
    row = 0
    for part in source.read("text"):
        for text, is_missing in zip(part.tolist(), part.isna(), strict=True):
            if not isinstance(text, str) and not is_missing:
                shown = reprlib.repr(text.tolist() if isinstance(text, np.ndarray) else text)
                raise InputError(
                    f"{source.name}: text in row {row} is {' '.join(shown.split())}; make it a "
                    "string"
                )
            yield is_missing or not text.strip()
            row += 1


def _check_labels(name: str, labels: pd.Series) -> None:
    """Raise InputError for a label that is missing or empty, has white space around it, or has a
    type that cannot be a class."""
    is_missing = labels.isna().to_numpy(bool)
    types = set()
    # A NumPy array turns timestamps into integers.
    for row, value, missing in zip(labels.index, labels.tolist(), is_missing, strict=True):
        if missing or (isinstance(value, str) and not value):
            raise InputError(f"{name}: no label in row {row}; label it or remove the row")
        if isinstance(value, str) and value != value.strip():
            raise InputError(
                f"{name}: label {reprlib.repr(value)} in row {row} begins or ends with white "
                "space; remove the white space"
            )
        types.add("list" if isinstance(value, np.ndarray) else type(value).__name__)
    if wrong := sorted(types - LABEL_TYPES):
        raise InputError(f"{name}: labels are of type {', '.join(wrong)}; use integers or strings")


def _check_spelling(parts: dict[str, Split]) -> None:
    """Raise InputError for labels of these splits that look alike, and for an invisible label."""
    known: dict[str, None] = {}
    for part in parts.values():
        labels = [v for v in part.labels.tolist() if isinstance(v, str) and v]
        if hidden := [v for v in dict.fromkeys(labels) if not canonical(v)]:
            row = part.rows[part.labels.tolist().index(hidden[0])]
            raise InputError(
                f"{part.source.name}: label {hidden[0]!r} in row {row} is invisible; name the class"
            )
        known |= dict.fromkeys(labels)
        check_distinct(known, f"{part.source.name}: labels")


def _number_labels(parts: dict[str, Split], given: list[str] | None, labelled: bool) -> list[str]:
    """Replace labels by 0..C-1 in place, in the sorted order of their values, and return the names.
    With `labelled` there must be at least two."""
    typed = [v for part in parts.values() if part.source.has_types for v in part.labels.tolist()]
    untyped = [v for part in parts.values() if not part.source.has_types for v in part.labels]
    if not any(isinstance(v, str) for v in typed) and all(map(INTEGER.fullmatch, untyped)):
        for split, part in parts.items():
            if not part.source.has_types:
                parts[split] = replace(part, labels=part.labels.astype(np.int64))
    _check_spelling(parts)
    train = parts["train"]
    types: dict[str, tuple[str, int]] = {}  # the first file and row with each type of label
    for part in parts.values():
        for label, row in zip(part.labels.tolist(), part.rows.tolist(), strict=True):
            types.setdefault(type(label).__name__, (part.source.name, row))
    if len(types) > 1:
        is_one_file = len({name for name, _ in types.values()}) == 1
        places = " and ".join(
            f"{kind} in {f'row {row}' if is_one_file else name}"
            for kind, (name, row) in types.items()
        )
        raise InputError(f"{train.source.name}: labels are of type {places}; use one type")
    values = sorted(set(train.labels.tolist()))
    if labelled and len(values) < 2:
        raise InputError(f"{train.source.name}: only one class, {values[0]!r}; give at least two")
    classes = pd.Index(values, dtype=object)
    for split, part in parts.items():
        numbers = classes.get_indexer(pd.Index(part.labels, dtype=object))  # -1: in no class
        place = int(numbers.argmin())
        if numbers[place] < 0:
            raise InputError(
                f"{part.source.name}: class {part.labels.tolist()[place]!r} in row "
                f"{part.rows[place]} is not in the training split; add it there or remove it from "
                f"{split}, or let a generated corpus have more training documents"
            )
        parts[split] = replace(part, labels=numbers.astype(np.int64))
    if given is None or values == [""]:
        return [str(v) for v in values]
    for value in values:
        if not (isinstance(value, int) and 0 <= value < len(given)):
            raise InputError(
                f"{train.source.name}: its corpus has {len(given)} label_names, so labels must be "
                f"integers from 0 to {len(given) - 1} (got {value!r}); change one of the two"
            )
    return [given[v] for v in values]
