"""Tasks for a language model: strings of a question, a bar and its answer, as in a b c | a b c.

Only the answer counts in the loss (data.scored). Train on short strings and test on long ones. The
label of a string, which balances the splits, is the first symbol of its answer.

Copy and reverse are tasks of Delétang et al. (2023); associative recall is the multi-query form of
Arora et al. (2023, "Zoology: Measuring and Improving Recall in Efficient Language Models").
"""

import string
from functools import partial
from math import factorial

import numpy as np

from posfuse.data.corpora import Corpus
from posfuse.data.strings import Rule, coded, strings
from posfuse.errors import InputError

BAR = "|"
LETTERS, DIGITS = string.ascii_lowercase, string.digits


def copy(
    split_seed: int,
    symbols: int,
    lengths: list[int],
    test_lengths: list[int],
    sizes: list[int],
) -> Corpus:
    """n random letters, a bar, the same n letters: 2n + 1 symbols."""
    return _repeated("copy", False, split_seed, symbols, lengths, test_lengths, sizes)


def reverse(
    split_seed: int,
    symbols: int,
    lengths: list[int],
    test_lengths: list[int],
    sizes: list[int],
) -> Corpus:
    """n random letters, a bar, the same n letters from last to first: 2n + 1 symbols."""
    return _repeated("reverse", True, split_seed, symbols, lengths, test_lengths, sizes)


def _repeated(
    name: str,
    is_reversed: bool,
    split_seed: int,
    symbols: int,
    lengths: list[int],
    test_lengths: list[int],
    sizes: list[int],
) -> Corpus:
    _check_symbols(symbols, LETTERS)
    rule = Rule(
        name,
        list(LETTERS[:symbols]),
        3,
        partial(_draw_repeated, symbols=symbols, is_reversed=is_reversed),
        lambda length: symbols ** (length // 2 - 1),
        step=2,
        options=(symbols,),
    )
    return strings(rule, split_seed, lengths, test_lengths, sizes)


def _draw_repeated(
    generator: np.random.Generator, labels: np.ndarray, length: int, symbols: int, is_reversed: bool
) -> np.ndarray:
    word = generator.integers(symbols, size=(len(labels), length // 2))
    word[:, -1 if is_reversed else 0] = labels
    answer = word[:, ::-1] if is_reversed else word
    bar = np.full((len(labels), 1), ord(BAR), dtype=np.uint8)
    return np.hstack([coded(LETTERS, word), bar, coded(LETTERS, answer)])


def associative_recall(
    split_seed: int,
    symbols: int,
    lengths: list[int],
    test_lengths: list[int],
    sizes: list[int],
) -> Corpus:
    """n different letters, each with a random digit, a bar, then the same letters in a random
    order, each with its digit, as in a 3 c 0 b 3 | c 0 a 3 b 3: 4n + 1 symbols. The digits after
    the bar are the answer; there are `symbols` of them."""
    _check_symbols(symbols, DIGITS)
    longest = 4 * len(LETTERS) + 1
    if max([*lengths, *test_lengths], default=0) > longest:
        raise InputError(
            f"data.corpus.lengths, data.test_lengths: associative_recall has {len(LETTERS)} "
            f"letters, so at most {longest} symbols (got {lengths} and {test_lengths})"
        )
    rule = Rule(
        "associative_recall",
        list(DIGITS[:symbols]),
        5,
        partial(_draw_pairs, symbols=symbols),
        partial(_n_pairs, symbols=symbols),
        step=4,
        options=(symbols,),
    )
    return strings(rule, split_seed, lengths, test_lengths, sizes)


def _draw_pairs(
    generator: np.random.Generator, labels: np.ndarray, length: int, symbols: int
) -> np.ndarray:
    n, pairs = len(labels), length // 4
    every = np.tile(np.arange(len(LETTERS)), (n, 1))
    letters = generator.permuted(every, axis=1)[:, :pairs]
    digits = generator.integers(symbols, size=(n, pairs))
    order = generator.permuted(np.tile(np.arange(pairs), (n, 1)), axis=1)
    digits[np.arange(n), order[:, 0]] = labels
    found = np.full((n, length), ord(BAR), dtype=np.uint8)
    asked = np.take_along_axis(letters, order, 1), np.take_along_axis(digits, order, 1)
    for start, (keys, values) in ((0, (letters, digits)), (2 * pairs + 1, asked)):
        end = start + 2 * pairs
        found[:, start:end:2], found[:, start + 1 : end : 2] = (
            coded(LETTERS, keys),
            coded(DIGITS, values),
        )
    return found


def _n_pairs(length: int, symbols: int) -> int:
    pairs = length // 4
    chosen = factorial(len(LETTERS)) // factorial(len(LETTERS) - pairs)
    orders: int = chosen * factorial(pairs) * symbols ** (pairs - 1)
    return orders


def _check_symbols(symbols: int, among: str) -> None:
    if not 2 <= symbols <= len(among):
        raise InputError(
            f"data.corpus.symbols: must be between 2 and {len(among)}, the symbols from "
            f"{among[0]} to {among[-1]} (got {symbols})"
        )
