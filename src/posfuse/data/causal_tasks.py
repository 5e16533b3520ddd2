"""Tasks for a language model: strings of a question, a bar and its answer, as in a b c | a b c.

Only the answer counts in the loss (data.targets). Models train on short strings and are tested on
long ones. The label of a string, which balances the splits, is the first symbol of its answer.

Copy and reverse are tasks of Delétang et al. (2023); associative recall is the multi-query form of
Arora et al. (2023, "Zoology: Measuring and Improving Recall in Efficient Language Models").
"""

import string
from math import factorial

import numpy as np

from posfuse.data.corpora import Corpus
from posfuse.data.strings import Rule, check_symbols, codes, strings
from posfuse.errors import InputError

BAR = "|"
LETTERS, DIGITS = string.ascii_lowercase, string.digits


def copy(
    split_seed: int, symbols: int, lengths: list[int], test_lengths: list[int], sizes: list[int]
) -> Corpus:
    """n random letters, a bar, the same n letters: 2n + 1 symbols. Raises InputError as `strings`
    and `check_symbols`."""
    rule = _with_copy("copy", symbols, is_reversed=False)
    return strings(rule, split_seed, lengths, test_lengths, sizes)


def reverse(
    split_seed: int, symbols: int, lengths: list[int], test_lengths: list[int], sizes: list[int]
) -> Corpus:
    """n random letters, a bar, the same n letters from last to first: 2n + 1 symbols. Raises
    InputError as `copy`."""
    rule = _with_copy("reverse", symbols, is_reversed=True)
    return strings(rule, split_seed, lengths, test_lengths, sizes)


def _with_copy(name: str, symbols: int, is_reversed: bool) -> Rule:
    check_symbols(symbols, LETTERS)

    def draw(generator: np.random.Generator, labels: np.ndarray, length: int) -> np.ndarray:
        word = generator.integers(symbols, size=(len(labels), length // 2))
        word[:, -1 if is_reversed else 0] = labels
        answer = word[:, ::-1] if is_reversed else word
        bar = np.full((len(labels), 1), ord(BAR), dtype=np.uint8)
        return np.hstack([codes(LETTERS, word), bar, codes(LETTERS, answer)])

    names = list(LETTERS[:symbols])
    return Rule(name, names, 3, draw, lambda n: symbols ** (n // 2 - 1), step=2, options=(symbols,))


def associative_recall(
    split_seed: int, symbols: int, lengths: list[int], test_lengths: list[int], sizes: list[int]
) -> Corpus:
    """n different letters, each with a random digit, a bar, then the same letters in a random
    order, each with its digit, as in a 3 c 0 b 3 | c 0 a 3 b 3: 4n + 1 symbols. The digits after
    the bar are the answer. There are `symbols` different digits. Raises InputError as `copy`, and
    for strings that need more letters than the alphabet has."""
    check_symbols(symbols, DIGITS)
    longest = 4 * len(LETTERS) + 1
    if max([*lengths, *test_lengths], default=0) > longest:
        raise InputError(
            f"data.corpus.lengths, data.test_lengths: associative_recall has {len(LETTERS)} "
            f"letters, so at most {longest} symbols (got {lengths} and {test_lengths})"
        )

    def draw(generator: np.random.Generator, labels: np.ndarray, length: int) -> np.ndarray:
        n, pairs = len(labels), length // 4
        every = np.tile(np.arange(len(LETTERS)), (n, 1))
        letters = generator.permuted(every, axis=1)[:, :pairs]
        digits = generator.integers(symbols, size=(n, pairs))
        order = generator.permuted(np.tile(np.arange(pairs), (n, 1)), axis=1)
        digits[np.arange(n), order[:, 0]] = labels
        question = np.stack([codes(LETTERS, letters), codes(DIGITS, digits)], axis=-1)
        answer = question[np.arange(n)[:, None], order]  # (n, pairs, 2)
        bar = np.full((n, 1), ord(BAR), dtype=np.uint8)
        shape = n, 2 * pairs
        return np.hstack([question.reshape(shape), bar, answer.reshape(shape)])

    def n_strings(length: int) -> int:
        pairs = length // 4
        chosen = factorial(len(LETTERS)) // factorial(len(LETTERS) - pairs)
        return int(chosen * factorial(pairs) * symbols ** (pairs - 1))

    names = list(DIGITS[:symbols])
    rule = Rule("associative_recall", names, 5, draw, n_strings, step=4, options=(symbols,))
    return strings(rule, split_seed, lengths, test_lengths, sizes)
