"""The metric that a report compares, and the format of its values."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from posfuse.errors import InputError

if TYPE_CHECKING:  # importing pandas takes half a second, and help does not need it
    import pandas as pd

WIDEST = 15  # characters of a number with all its digits

Score = TypeVar("Score", float, "pd.Series[float]", "pd.DataFrame")


def decimals(value: float, digits: int, flags: str = "") -> str:
    """A number with `digits` decimals, or in scientific notation if it is longer than WIDEST."""
    text = f"{value:{flags}.{digits}f}"
    return text if len(text) <= WIDEST else f"{value:{flags}.4e}"


@dataclass(frozen=True)
class Metric:
    """A number that records have for their test and validation splits."""

    name: str  # its key in the record
    title: str  # accuracy
    unit: str  # of differences, after a number: points
    factor: float = 100.0  # the unit is the record's number times this factor
    digits: int = 2
    lower_is_better: bool = False
    margin: float = 0.5  # the largest difference that does not matter
    effect: float = 1.0  # the difference for which the needed seeds are listed
    guess: float = 0.0  # the value of guessing; a study gives it to a run that diverged
    has_classes: bool = False  # True: guessing gives 1 / the number of classes instead
    split: str = "test "  # in the name of differences; "" if the split of values is not known
    counts_documents: bool = True  # True: a value in percent is a fraction of the test documents

    @property
    def heading(self) -> str:
        return f"{self.title[:1].upper()}{self.title[1:]}"

    @property
    def level(self) -> str:
        """The name of values, after the name of a split: accuracy in %, bits per byte."""
        return f"{self.title} in %" if self.is_share else self.title

    @property
    def column(self) -> str:
        """The column of the test split in the table of `collect`."""
        return f"test.{self.name}"

    @property
    def is_share(self) -> bool:
        """True if values are in percent."""
        return self.unit == "points"

    @property
    def points(self) -> str:
        """The unit of a difference on the test split, in full."""
        own = self.title if self.is_share else self.unit
        return f"{'points of ' * self.is_share}{self.split}{own}"

    @property
    def tie(self) -> float:
        """Validation results within this distance are equal, because records have them in single
        precision."""
        return float(10 ** -(self.digits + 2))

    @property
    def sign(self) -> int:
        """1 if a higher value is better, -1 if a lower value is better."""
        return -1 if self.lower_is_better else 1

    def first_best(self, values: Iterable[float]) -> int:
        """The position of the best value, or of the first one within a tie."""
        merits = [self.sign * value for value in values]
        least = max(merits) - self.tie
        return next(i for i, merit in enumerate(merits) if merit >= least)

    @property
    def perfect(self) -> float:
        """The best possible value."""
        return 0.0 if self.lower_is_better else self.factor

    def guesses(self, classes: "pd.Series[float]") -> "pd.Series[float]":
        """The values of guessing, from the numbers of classes; with `has_classes` NaN for fewer
        than two, as of a language model."""
        if not self.has_classes:
            return classes.map(lambda _: self.guess).astype(float)
        return (self.factor / classes).where(classes > 1)

    @property
    def best(self) -> str:
        return "lowest" if self.lower_is_better else "highest"

    @property
    def axis(self) -> str:
        """The name of an axis of a figure."""
        return f"{self.title}, %" if self.is_share else self.title

    @property
    def percent(self) -> str:
        """The text after a value: " %" or nothing."""
        return " %" if self.is_share else ""

    def of(self, runs: "pd.DataFrame", split: str = "test") -> "pd.Series[float]":
        """The values of all runs in the metric's unit; NaN for a run without this metric."""
        import pandas as pd

        values = runs.get(f"{split}.{self.name}", pd.Series(float("nan"), runs.index))
        return self.factor * pd.to_numeric(values, errors="coerce").astype(float)

    def gain(self, difference: Score) -> Score:
        """A difference with its sign changed so that an improvement is positive."""
        return self.sign * difference

    @property
    def better(self) -> str:
        """A note for differences in which a negative value is better."""
        return " (negative: better)" if self.lower_is_better else ""

    def amount(self, value: float) -> str:
        """A number of the unit: 1 point, 0.5 points."""
        return f"{value:g} {'point' if (self.unit, value) == ('points', 1) else self.unit}"

    def number(self, value: float, sign: str = "") -> str:
        """A value as text. Two sums of the same numbers differ in their last digits, which would
        round a half up or down."""
        return decimals(round(value, self.digits + 6), self.digits, f"{sign}z")  # z: no -0.00

    def signed(self, value: float) -> str:
        """A difference as text, always with its sign."""
        return self.number(value, "+")


ACCURACY = Metric("accuracy", "accuracy", "points", has_classes=True)
MACRO_F1 = Metric("macro_f1", "macro F1", "points", has_classes=True, counts_documents=False)
EXACT_MATCH = Metric("exact_match", "exact match", "points")
GREEDY_ACCURACY = Metric("greedy_accuracy", "greedy accuracy", "points")
BITS_PER_BYTE = Metric(
    "bits_per_byte", "bits per byte", "bits per byte",
    factor=1.0, digits=4, lower_is_better=True, margin=0.01, effect=0.02, guess=8.0,
)  # fmt: skip
METRICS = {
    metric.name: metric
    for metric in (ACCURACY, MACRO_F1, EXACT_MATCH, GREEDY_ACCURACY, BITS_PER_BYTE)
}


def classes_of(runs: "pd.DataFrame") -> "pd.Series[float]":
    """The number of classes by corpus; 0 for language models."""
    return runs["label_names"].map(len).groupby(runs["data"], sort=False).max()


def metric_of(runs: "pd.DataFrame", name: str | None = None) -> Metric:
    """The metric with this name; by default the metric of all runs' tasks, or accuracy if they
    differ. Raises InputError for a name that is unknown, or that a run lacks."""
    known = [own for own, metric in METRICS.items() if metric.of(runs).notna().all()]
    if not known:
        option = "" if name is None else "--metric: "  # posfuse dashboard has no such option
        raise InputError(f"{option}these runs have no metric in common; report them apart")
    if name is None:
        of_tasks = [*runs["task.metric"].unique()]
        usual = of_tasks[0] if len(of_tasks) == 1 else ACCURACY.name
        return METRICS[next((own for own in (usual, ACCURACY.name) if own in known), known[0])]
    if name not in METRICS:
        listed = ", ".join(METRICS)
        raise InputError(f"--metric: no metric {name!r}; use one of {listed}")
    if name not in known:
        listed = ", ".join(known)
        raise InputError(f"--metric: no metric {name!r} here; these runs have {listed}")
    return METRICS[name]
