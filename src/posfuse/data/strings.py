"""Random strings of symbols in splits, with a label by a rule.

Every split has the same number of strings of each class, and of each length, up to rounding. The
classes also have equal parts of each length. A split `test@n` has only strings of n symbols.

A string of validation or test is in no other split. Short strings are an exception, because there
are few of them. If validation and test need more than half of a class's strings of one length, all
splits draw strings of this length independently. Training strings of one length may repeat.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd

from posfuse.data.corpora import SPLITS, Corpus, Frames, check_sizes, length_split
from posfuse.errors import InputError

FORMAT = 2  # increase it if the same arguments give other strings
# A generator, the labels (m,) and a length L -> the strings (m, L), ASCII codes in uint8.
Draw = Callable[[np.random.Generator, np.ndarray, int], np.ndarray]


@dataclass(frozen=True)
class Rule:
    """The strings of a task."""

    name: str
    label_names: list[str]
    shortest: int  # symbols
    draw: Draw
    # length -> the least number of different strings of each class with this length
    n_strings: Callable[[int], int]
    step: int = 1  # the lengths are shortest, shortest + step, shortest + 2 step and so on
    options: tuple[int, ...] = ()  # the task's options that change its strings

    def has(self, length: int) -> bool:
        """True if the task has strings of this length."""
        return length >= self.shortest and (length - self.shortest) % self.step == 0

    @property
    def lengths(self) -> str:
        """The first lengths of its strings."""
        first = range(self.shortest, self.shortest + 3 * self.step, self.step)
        return f"{', '.join(map(str, first))}, ..."


def strings(
    rule: Rule, split_seed: int, lengths: list[int], test_lengths: list[int], sizes: list[int]
) -> Corpus:
    """`sizes` strings of `lengths` = [min, max] symbols in train, validation and test, and as many
    as in test for each of `test_lengths`.

    Raises InputError for lengths that the rule does not have, and for sizes below the number of
    classes.
    """
    first, last = lengths if len(lengths) == 2 else (0, 0)
    trained = [n for n in range(first, last + 1) if rule.has(n)]
    if not trained or first < rule.shortest:
        raise InputError(
            f"data.corpus.lengths: must be [min, max] with {rule.shortest} <= min <= max, "
            f"and a length of {rule.name} ({rule.lengths}) between them (got {lengths})"
        )
    for n in test_lengths:
        if not rule.has(n):
            raise InputError(
                f"data.test_lengths: the strings of {rule.name} have {rule.lengths} symbols "
                f"(got {n})"
            )
    check_sizes(sizes, len(rule.label_names))
    plan = {split: (size, trained) for split, size in zip(SPLITS, sizes, strict=True)}
    plan |= {length_split(n): (sizes[2], [n]) for n in test_lengths}
    arguments = (*rule.options, split_seed, lengths, test_lengths, sizes)
    fingerprint = f"{rule.name} {FORMAT} {arguments}"
    return Corpus(fingerprint, lambda: _frames(rule, split_seed, plan), rule.label_names)


def _frames(rule: Rule, split_seed: int, plan: dict[str, tuple[int, list[int]]]) -> Frames:
    """The splits of `plan`, which has the size and the lengths of each."""
    n_classes = len(rule.label_names)
    labels, lengths, texts = {}, {}, {}
    for split, (size, of_split) in plan.items():
        number = np.arange(size)
        labels[split] = number % n_classes
        lengths[split] = np.array(of_split)[number // n_classes % len(of_split)]
        texts[split] = np.empty(size, dtype=object)
    held_out = [split for split in plan if split != "train"]
    for length in sorted({n for _, of_split in plan.values() for n in of_split}):
        places = {split: np.flatnonzero(lengths[split] == length) for split in plan}
        wanted = {split: labels[split][places[split]] for split in plan}
        of_class = np.bincount(np.concatenate([wanted[split] for split in held_out]))
        has_room = 2 * of_class.max(initial=0) <= rule.n_strings(length)
        taken: set[str] = set()
        for split in (*held_out, "train"):
            is_held = split != "train"
            draw = _generator(split_seed, split, length)
            drawn = rule.draw(draw, wanted[split], length)
            if has_room:
                _replace_known(rule, draw, drawn, wanted[split], taken, is_held)
            drawn_texts = _texts(drawn)
            texts[split][places[split]] = drawn_texts
            if is_held:
                taken.update(drawn_texts)
    frames = {}
    for split in plan:
        order = _generator(split_seed, split, 0).permutation(len(texts[split]))
        frames[split] = pd.DataFrame({"text": texts[split][order], "label": labels[split][order]})
    return frames


def _generator(split_seed: int, split: str, length: int) -> np.random.Generator:
    """The generator of a split and length. Strings do not depend on those of other lengths."""
    return np.random.default_rng([split_seed, length, *split.encode()])


def _replace_known(
    rule: Rule,
    draw: np.random.Generator,
    drawn: np.ndarray,
    labels: np.ndarray,
    taken: set[str],
    also_repeated: bool,
) -> None:
    """Replace, in place, the strings of `drawn` that are in `taken`, and with `also_repeated` the
    strings that are in `drawn` twice."""
    while True:
        texts = pd.Series(_texts(drawn), dtype=object)
        is_known = texts.isin(taken)
        if also_repeated:
            is_known |= texts.duplicated()
        if not is_known.any():
            return
        drawn[is_known] = rule.draw(draw, labels[is_known], drawn.shape[1])


def _texts(drawn: np.ndarray) -> list[str]:
    """Strings (m, L) as texts with a space between two symbols."""
    return [" ".join(string.tobytes().decode()) for string in drawn]


def codes(symbols: str, numbers: np.ndarray) -> np.ndarray:
    """The ASCII codes of the symbols with these numbers, in the shape of `numbers`."""
    return np.asarray(np.frombuffer(symbols.encode(), dtype=np.uint8)[numbers])


def check_symbols(symbols: int, among: str) -> None:
    """Raises InputError unless a task has at least two symbols, and at most as many as `among`."""
    if not 2 <= symbols <= len(among):
        raise InputError(
            f"data.corpus.symbols: must be between 2 and {len(among)}, the symbols from "
            f"{among[0]} to {among[-1]} (got {symbols})"
        )
