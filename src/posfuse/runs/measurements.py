"""mechanism.parquet: how a trained model uses position (training/observers.py), and the loss of a
language model by position."""

from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from posfuse.runs.records import MECHANISM, read_table, table_of

WHOLE = -1  # the layer of a measurement without a layer
LOSS_BY_POSITION = "loss_by_position"  # of a language model, in nats
BY_DISTANCE = ("attention_mean", "attention_ratio")  # measurements with a row per distance


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


def read(folder: Path) -> pd.DataFrame:
    """The columns of `Measurement`. Without the file (older versions, trainer.mechanism=false)
    there are no rows.

    Raises InputError if the file is damaged.
    """
    path = folder / MECHANISM
    return read_table(path, Measurement) if path.exists() else table_of(Measurement, [])
