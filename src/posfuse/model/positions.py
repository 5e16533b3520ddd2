"""The positions of a batch's tokens: contiguous ones, or a random sorted subset of a longer range
(Ruoss et al. 2023, Randomized Positional Encodings Boost Length Generalization of Transformers).

All documents of a batch padded to L tokens have the same L positions; a shorter document uses the
first of them.
"""

from collections.abc import Iterable

import torch
from torch import Tensor

# The positions (L,) of tokens, int64 and ascending, or the first of contiguous ones.
Positions = Tensor | int
# Tensors (..., k) of tokens, or (N, k) of positions, whose row i belongs to position i.
Parts = tuple[Tensor, ...]


class PositionSampler:
    """Positions 0, 1, 2 and so on; with a `range`, L sorted random numbers below it.

    In training each step draws a subset. Elsewhere the subset depends only on `seed` and L: it
    consists of the first L numbers of one permutation of the range.
    """

    def __init__(self, range: int | None = None, seed: int = 0) -> None:
        """range: the largest position + 1; None: contiguous positions. seed: below 2^63."""
        self.range, self.seed = range, seed

    def in_training(self, length: int, seed: int) -> Positions:
        """The positions of a training step, which depend on its seed: (length,) int64 on the CPU,
        or 0, the first of contiguous positions."""
        return 0 if self.range is None else self._subset(self.range, length, seed)

    def outside_training(self, length: int, offset: int = 0) -> Positions:
        """The positions outside training, (length,) int64 on the CPU: the last `length` of a subset
        of offset + length; for contiguous ones `offset`, the first of them."""
        if self.range is None:
            return offset
        return self._subset(self.range, offset + length, self.seed)[offset:]

    def given(self, positions: Positions, ids: Tensor) -> Positions:
        """The argument `positions` of a model, on the device of ids (..., L): a tensor as it is, an
        offset as `outside_training`."""
        if isinstance(positions, int):
            positions = self.outside_training(ids.shape[-1], positions)
        return positions if isinstance(positions, int) else positions.to(ids.device)

    def _subset(self, range: int, length: int, seed: int) -> Tensor:
        if length > range:
            raise ValueError(
                f"got {length} tokens, but positions are drawn below {range}; cut the documents or "
                f"train with encoding.range={length}"
            )
        # Not compiled, because a graph has no generator.
        draw = torch.compiler.disable(_permutation)  # type: ignore[no-untyped-call]
        return draw(range, seed)[:length].sort().values


def _permutation(n: int, seed: int) -> Tensor:
    return torch.randperm(n, generator=torch.Generator().manual_seed(seed))


def as_tensor(positions: Positions, like: Tensor) -> Tensor:
    """Positions (L,) as they are, or the contiguous ones from a number on, for like (B, L, ...)."""
    if isinstance(positions, Tensor):
        return positions
    return torch.arange(positions, positions + like.shape[1], device=like.device)


def rows_at(parts: Iterable[Tensor], length: int, positions: Positions) -> Parts:
    """The rows of position parts (N, k) at `positions`, or `length` rows from row `positions` on.

    Raises ValueError if the `length` rows exceed N.
    """
    if isinstance(positions, Tensor):
        return tuple(part[positions] for part in parts)
    end = positions + length
    rows = tuple(part[positions:end] for part in parts)
    if rows and len(rows[0]) < length:
        raise ValueError(
            f"got {end} tokens, but the position table ends at {positions + len(rows[0])}; cut the "
            f"documents or train with data.max_len={end}"
        )
    return rows
