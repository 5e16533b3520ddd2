"""Epochs and evaluations. Each evaluation ends one of Lightning's epochs, which is called a turn
here.

So an evaluation always follows the last step of a turn, and a run never resumes between a step and
its evaluation. Only this module converts turns to epochs.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Evaluations:
    """The evaluations of each epoch."""

    per_epoch: int = 1

    def part(self, turn: int, batches: int) -> tuple[int, int]:
        """A turn's part of an epoch with this many batches: its first batch, and the first batch
        after it. The parts of an epoch have almost equal sizes."""
        at = turn % self.per_epoch
        return at * batches // self.per_epoch, (at + 1) * batches // self.per_epoch

    def turns(self, epochs: int) -> int:
        return epochs * self.per_epoch

    def epoch(self, turn: int) -> int:
        """The epoch, from 1, of a turn, from 0."""
        return turn // self.per_epoch + 1

    def ends_epoch(self, turn: int) -> bool:
        """True if this turn, from 0, is the last one of its epoch."""
        return (turn + 1) % self.per_epoch == 0

    def epochs(self, turns: int) -> float:
        """The number of epochs in this many turns; a fraction is rounded to two digits."""
        whole, rest = divmod(turns, self.per_epoch)
        return round(whole + rest / self.per_epoch, 2) if rest else whole


ONE_PER_EPOCH = Evaluations()
