"""The tables of a run: learning curve, predictions, diagnostics and mechanism."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

from pyarrow.csv import read_csv

from posfuse import untrusted
from posfuse.errors import input_errors
from posfuse.runs.records import HISTORY, MECHANISM, RUN_AGAIN, replacing
from posfuse.seals import check_whole

if TYPE_CHECKING:  # importing pandas takes half a second, and help does not need it
    import pandas as pd

CLASSES, WINDOWS, OTHER = "classes", "windows", "other"  # the rows of predictions.parquet
WHOLE = -1  # the layer of a measurement without a layer
LOSS_BY_POSITION = "loss_by_position"  # of a language model, in nats


@dataclass(frozen=True)
class Diagnostic:
    """A row of diagnostics.parquet: `name` over `n` tokens, queries, documents, or steps of a
    gradient norm; n is 1 for a token scale. It is the mean, except for `norm_ratio` and `gate_std`.

    `by` is the variable that lies between low and high, inclusive: "position" (from 0), "frequency"
    (occurrences of the word in the training split), "layer" (from 1), "offset" (the position of the
    first token, of `accuracy_unshifted` and `accuracy_shifted`), or "" for all together. Entropies
    are in bits, accuracies are shares.
    """

    epoch: int  # from 1
    name: str
    by: str
    low: int
    high: int
    n: int
    value: float


@dataclass(frozen=True)
class Measurement:
    """A row of mechanism.parquet: the mean of `name` over `n` pairs, tokens or documents.

    Layer 0 is the fused input, layers from 1 are the encoder's blocks, WHOLE is the model. A
    distance in tokens, or a place in the window, lies between low and high, inclusive. Both are 0
    for other measurements.
    """

    name: str
    layer: int
    n: int
    value: float
    low: int = 0
    high: int = 0


Rows = Sequence[dict[str, float]]
# Logs the rows of the history, the diagnostics, and the rows of the steps, so far.
LogRows = Callable[[Rows, Sequence[Diagnostic], Rows], None]


def predictions_of(table: "pd.DataFrame", label_names: Collection[str]) -> str:
    """What the rows of PREDICTIONS are: documents with one of the named classes, windows of a
    language model, or something else of the user's own task."""
    if label_names and {"label", "predicted"} <= {*table}:
        return CLASSES
    return WINDOWS if {"targets", "right", "loss"} <= {*table} else OTHER


def table_of(row: type, rows: Sequence[Any]) -> "pd.DataFrame":
    """The instances of a dataclass as a frame with its columns."""
    import pandas as pd

    return pd.DataFrame(rows, columns=[f.name for f in fields(row)])


def write_table(path: Path, table: "pd.DataFrame") -> None:
    """A frame as CSV or as Parquet, by the file's suffix."""
    with replacing(path) as part:
        write = table.to_csv if path.suffix == ".csv" else table.to_parquet
        # An open file, because pyarrow refuses a path with other letters than those of the locale.
        with part.open("wb") as file:
            write(file, index=False)


def read_history(folder: Path, name: str = HISTORY) -> "pd.DataFrame":
    """The rows of the learning curve by evaluation, or of STEPS. Raises OSError, or ValueError with
    the reason."""
    path = folder / name
    check_whole(path)
    untrusted.check_file(path, untrusted.LARGEST_CSV)
    with path.open("rb") as file:
        history: pd.DataFrame = read_csv(file).to_pandas()
    if history.empty:
        raise ValueError("no rows")
    return history


def read_table(path: Path, row: type) -> "pd.DataFrame":
    """A Parquet file of a run, whose rows are instances of a dataclass. Raises InputError if the
    file is missing or damaged."""
    kinds = {int: "a whole number", float: "a number", str: "a text"}
    with input_errors(f"{path}: not readable", RUN_AGAIN):
        check_whole(path)
        columns = {name: kinds[kind] for name, kind in get_type_hints(row).items()}
        table = untrusted.read_parquet(path, columns)
        for name, kind in columns.items():
            if kind != kinds[float] and table[name].isna().any():
                raise ValueError(f"{name} has missing values")
    return table


def read_measurements(folder: Path) -> "pd.DataFrame":
    """The rows of mechanism.parquet; none without the file (older versions,
    trainer.mechanism=false). Raises InputError if the file is damaged."""
    path = folder / MECHANISM
    return read_table(path, Measurement) if path.exists() else table_of(Measurement, [])
