"""ListOps of Long Range Arena: nested operations on digits; the class is their value, 0 to 9.

    [MAX 4 [MED 1 9 8 3 ] [SM 7 5 ] 0 ]    is    5

The distribution is that of Tay et al. (2021), after Nangia & Bowman (2018). The top node (depth 1)
is an operator. A node at the greatest depth is a digit. Any other node is a digit with probability
0.75. Operators, their 2 to 10 arguments and digits are uniform. Expressions of 501 to 1999 tokens
are used. Tokens are `[MIN`, `[MAX`, `[MED`, `[SM`, `]` and digits. A length counts all of them, as
in that paper. The parentheses in the paper's files are neither counted nor read.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from statistics import median

import numpy as np
import pandas as pd

from posfuse.data.corpora import SPLITS, Corpus, Frames, Poll, check_sizes
from posfuse.errors import InputError

DIGITS = list("0123456789")
END = "]"
SMALLEST = 4  # tokens of the shortest expression, as [MAX 1 2 ]
BLOCK = 1 << 16  # nodes drawn at a time
TRIES, ROUNDS = 20_000, 1_000  # drawing fails if it would need more rounds of this many tries
FORMAT = 1  # increase it if the same arguments give other documents

Node = tuple[str, int]  # its token, its number of arguments: 0 for a digit


OPERATORS: dict[str, Callable[[list[int]], int]] = {
    "[MIN": min,
    "[MAX": max,
    "[MED": lambda arguments: int(median(arguments)),  # rounded down
    "[SM": lambda arguments: sum(arguments) % 10,
}


def listops(
    split_seed: int,
    max_depth: int,
    max_arguments: int,
    digit_probability: float,
    lengths: list[int],
    sizes: list[int],
) -> Corpus:
    """Long, position is necessary: `sizes` different expressions of `lengths` = [min, max] tokens.

    Raises InputError for limits outside their range; `read` raises it if too few expressions
    satisfy them.
    """
    key = "data.corpus"
    if max_arguments < 2:
        raise InputError(f"{key}.max_arguments: must be at least 2 (got {max_arguments})")
    if max_depth < 2:
        raise InputError(f"{key}.max_depth: must be at least 2 (got {max_depth})")
    if not 0 <= digit_probability < 1:
        raise InputError(
            f"{key}.digit_probability: must be at least 0 and below 1 (got {digit_probability})"
        )
    if len(lengths) != 2 or not SMALLEST <= lengths[0] <= lengths[1]:
        raise InputError(
            f"{key}.lengths: must be [min, max] in tokens, {SMALLEST} <= min <= max (got {lengths})"
        )
    check_sizes(sizes, 1)

    def read(poll: Poll = lambda: None) -> Frames:
        draw = np.random.default_rng(split_seed)
        inner = _nodes(draw, digit_probability, max_arguments)
        levels = [inner] * min(max_depth, lengths[1])  # depth never exceeds length
        levels[0], levels[-1] = (_nodes(draw, share, max_arguments) for share in (0.0, 1.0))
        documents = _documents(levels, lengths, sum(sizes), poll)
        rows = iter(documents.items())
        return {
            split: pd.DataFrame(islice(rows, size), columns=["text", "label"])
            for split, size in zip(SPLITS, sizes, strict=True)
        }

    arguments = (split_seed, max_depth, max_arguments, digit_probability, lengths, sizes)
    return Corpus(f"listops {FORMAT} {arguments}", read, DIGITS)


def evaluate(tokens: Sequence[str]) -> int:
    """The value of an expression."""
    operators: list[str] = []  # the open operators
    arguments: list[list[int]] = [[]]  # the result, then the values of each open operator
    for token in tokens:
        if token in OPERATORS:
            operators.append(token)
            arguments.append([])
        elif token == END:
            value = OPERATORS[operators.pop()](arguments.pop())
            arguments[-1].append(value)
        else:
            arguments[-1].append(int(token))
    return arguments[0][0]


def _documents(
    levels: Sequence[Iterator[Node]], lengths: Sequence[int], size: int, poll: Poll
) -> dict[str, int]:
    """`size` different texts and their values, in the order of the draws."""
    shortest, longest = lengths
    documents: dict[str, int] = {}
    while True:
        before = len(documents)
        for _ in range(TRIES):
            poll()
            tokens = _expression(levels, longest)
            if tokens is None or len(tokens) < shortest:
                continue
            documents[" ".join(tokens)] = evaluate(tokens)
            if len(documents) == size:
                return documents
        if size - len(documents) > ROUNDS * (len(documents) - before):
            raise InputError(
                f"data.corpus.lengths: only {len(documents) - before} of {TRIES} expressions are "
                f"new and have {shortest} to {longest} tokens, with {before} of {size} documents "
                "found; change lengths, max_depth or digit_probability, or give smaller sizes"
            )


def _expression(levels: Sequence[Iterator[Node]], longest: int) -> list[str] | None:
    """The tokens of one expression, or None if it must become longer than `longest` tokens.

    `levels` are the sources of nodes, one for each depth.
    """
    tokens: list[str] = []
    missing: list[int] = []  # arguments that each open operator still needs
    least = 1  # tokens if every further node is a digit
    while True:
        token, n_arguments = next(levels[len(missing)])
        tokens.append(token)
        if n_arguments:
            least += n_arguments + 1
            if least > longest:
                return None
            missing.append(n_arguments)
            continue
        while missing and missing[-1] == 1:  # the last argument closes its operator
            missing.pop()
            tokens.append(END)
        if not missing:
            return tokens
        missing[-1] -= 1


def _nodes(
    draw: np.random.Generator, digit_probability: float, max_arguments: int
) -> Iterator[Node]:
    """An endless stream of independent nodes."""
    nodes = [(digit, 0) for digit in DIGITS]
    nodes += [(name, n) for name in OPERATORS for n in range(2, max_arguments + 1)]
    while True:
        chosen = draw.integers(len(DIGITS), size=BLOCK)
        operator = draw.random(BLOCK) >= digit_probability
        chosen[operator] = draw.integers(len(DIGITS), len(nodes), size=operator.sum())
        yield from map(nodes.__getitem__, chosen.tolist())
