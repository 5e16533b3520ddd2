"""Tasks on strings of symbols, for training on short strings and testing on long ones.

Missing duplicate, even pairs, parity and cycle navigation are tasks of Delétang et al. (2023,
"Neural Networks and the Chomsky Hierarchy") and Ruoss et al. (2023); missing palindrome is in the
first version of the code of Delétang et al. docs/sweeps.md says what position is worth in each.
"""

from math import comb, factorial

import numpy as np

from posfuse.data.corpora import Corpus
from posfuse.data.strings import Rule, check_symbols, codes, strings
from posfuse.errors import InputError

MARK, MISSING = "x", "?"
LETTERS = "abcdefghijklmnopqrstuvw"  # up to MARK
CYCLE = 5  # positions of cycle_navigation
STEPS = "-0+"
# By the sum of two steps modulo CYCLE: six pairs of steps, each possible pair equally often.
LAST_STEPS = np.array(
    [
        [(0, 0), (-1, 1), (1, -1)] * 2,
        [(0, 1), (1, 0)] * 3,
        [(1, 1)] * 6,
        [(-1, -1)] * 6,
        [(0, -1), (-1, 0)] * 3,
    ]
)


def parity(
    split_seed: int, lengths: list[int], test_lengths: list[int], sizes: list[int]
) -> Corpus:
    """Control, order is worth nothing: is the number of b in a string over {a, b} even or odd?"""

    def draw(generator: np.random.Generator, labels: np.ndarray, length: int) -> np.ndarray:
        bits = generator.integers(2, size=(len(labels), length), dtype=np.uint8)
        bits[:, -1] ^= (bits.sum(axis=1) % 2 != labels).astype(np.uint8)
        return codes("ab", bits)

    rule = Rule("parity", ["even", "odd"], 1, draw, lambda length: 2 ** (length - 1))
    return strings(rule, split_seed, lengths, test_lengths, sizes)


def even_pairs(
    split_seed: int, lengths: list[int], test_lengths: list[int], sizes: list[int]
) -> Corpus:
    """Is the number of pairs ab and ba in a string over {a, b} even? It is if and only if the first
    and the last symbol are equal. A string of one symbol has no pair, so the shortest has two."""

    def draw(generator: np.random.Generator, labels: np.ndarray, length: int) -> np.ndarray:
        bits = generator.integers(2, size=(len(labels), length), dtype=np.uint8)
        bits[:, -1] = bits[:, 0] ^ labels
        return codes("ab", bits)

    rule = Rule("even_pairs", ["even", "odd"], 2, draw, lambda length: 2 ** (length - 1))
    return strings(rule, split_seed, lengths, test_lengths, sizes)


def missing_duplicate(
    split_seed: int, lengths: list[int], test_lengths: list[int], sizes: list[int]
) -> Corpus:
    """w w with one of its symbols missing, w over {a, b}; the label is the missing symbol.

    Its copy is half a string away, so the distance depends only on the length. In a string of two
    symbols the answer is the only visible symbol, so the shortest string has four.
    """
    rule = _with_missing("missing_duplicate", is_mirrored=False)
    return strings(rule, split_seed, lengths, test_lengths, sizes)


def missing_palindrome(
    split_seed: int, lengths: list[int], test_lengths: list[int], sizes: list[int]
) -> Corpus:
    """As `missing_duplicate`, but w is followed by its reverse.

    The copy of the missing symbol is at the mirrored place, so its distance depends on the place.
    """
    rule = _with_missing("missing_palindrome", is_mirrored=True)
    return strings(rule, split_seed, lengths, test_lengths, sizes)


def _with_missing(name: str, is_mirrored: bool) -> Rule:
    """The other symbols of w equal the missing one with the probability `same`.

    With 1/2, as in Delétang et al., the twin of the missing symbol would make this symbol the more
    frequent visible one on average, at every length. With n = |w|, a visible place shows the
    missing symbol with the probability (1 + 2 (n - 1) same) / (2n - 1). `same` makes it 1/2, so
    that no place and no mean of the counts depends on the label.
    """

    def draw(generator: np.random.Generator, labels: np.ndarray, length: int) -> np.ndarray:
        half, every = length // 2, np.arange(len(labels))
        same = (2 * half - 3) / (4 * (half - 1))
        word = (generator.random((len(labels), half)) >= same) ^ labels[:, None].astype(bool)
        place = generator.integers(length, size=len(labels))
        twin = length - 1 - place if is_mirrored else place - half
        word[every, np.where(place < half, place, twin)] = labels
        whole = np.hstack([word, word[:, ::-1] if is_mirrored else word])
        drawn = codes("ab", whole.astype(int))
        drawn[every, place] = ord(MISSING)
        return drawn

    return Rule(name, ["a", "b"], 4, draw, lambda length: length // 2 * 2 ** (length // 2), step=2)


def indirect_index(
    split_seed: int,
    symbols: int,
    farthest: int,
    lengths: list[int],
    test_lengths: list[int],
    sizes: list[int],
) -> Corpus:
    """A digit k, then letters with one x among them; the label is the letter k places left of x.

    k is uniform from 1 to `farthest`, and x is at a random place with a letter k places left of it.
    There are `symbols` different letters. Their counts differ by at most 1, and the letters with
    the larger count do not depend on the label. Raises InputError as `strings` and `check_symbols`,
    and for `farthest` outside 1 to 9.
    """
    check_symbols(symbols, LETTERS)
    if not 1 <= farthest <= 9:
        raise InputError(f"data.corpus.farthest: must be a digit from 1 to 9 (got {farthest})")

    def draw(generator: np.random.Generator, labels: np.ndarray, length: int) -> np.ndarray:
        n, n_letters, every = len(labels), length - 2, np.arange(len(labels))
        rounds = -(-n_letters // symbols)  # in the last one not all letters may have a place
        letters = np.tile(np.arange(symbols, dtype=np.uint8), (n, rounds))
        letters[:, -symbols:] = generator.permuted(letters[:, -symbols:], axis=1)
        letters = generator.permuted(letters[:, :n_letters], axis=1)
        k = generator.integers(1, farthest + 1, size=n)
        mark = generator.integers(k, n_letters + 1)  # letters left of x
        # Swap the letter at the target with a random letter that equals the label.
        keys = np.where(letters == labels[:, None], generator.random(letters.shape), -1.0)
        one = keys.argmax(axis=1)
        letters[every, one] = letters[every, mark - k]
        letters[every, mark - k] = labels
        drawn = np.empty((n, length), dtype=np.uint8)
        drawn[:, 0] = ord("0") + k
        drawn[every, mark + 1] = ord(MARK)
        is_letter = np.ones(drawn.shape, dtype=bool)
        is_letter[:, 0] = is_letter[every, mark + 1] = False
        drawn[is_letter] = codes(LETTERS, letters).ravel()
        return drawn

    def n_strings(length: int) -> int:
        n_letters = length - 2
        each, more = divmod(n_letters, symbols)
        same = factorial(each) ** (symbols - more) * factorial(each + 1) ** more
        orders = factorial(n_letters) // same
        places = sum(range(n_letters - farthest + 1, n_letters + 1))  # of x, over all k
        return int(places * comb(symbols, more) * orders // symbols)

    shortest = 2 + max(symbols, farthest)  # k, x, every letter
    names, options = list(LETTERS[:symbols]), (symbols, farthest)
    rule = Rule("indirect_index", names, shortest, draw, n_strings, options=options)
    return strings(rule, split_seed, lengths, test_lengths, sizes)


def cycle_navigation(
    split_seed: int, lengths: list[int], test_lengths: list[int], sizes: list[int]
) -> Corpus:
    """Control, order is worth nothing: where on a cycle of five positions do the steps -, 0 and +
    lead from position 0?

    The last two steps are drawn from the pairs that lead to the label, so the shortest string has
    two.
    """

    def draw(generator: np.random.Generator, labels: np.ndarray, length: int) -> np.ndarray:
        steps = generator.integers(-1, 2, size=(len(labels), length), dtype=np.int8)
        rest = (labels - steps[:, :-2].sum(axis=1)) % CYCLE
        steps[:, -2:] = LAST_STEPS[rest, generator.integers(6, size=len(labels))]
        return codes(STEPS, steps + 1)

    names = [str(position) for position in range(CYCLE)]
    # For all other steps, at least one pair of last steps leads to the label.
    rule = Rule("cycle_navigation", names, 2, draw, lambda length: 3 ** (length - 2))
    return strings(rule, split_seed, lengths, test_lengths, sizes)
