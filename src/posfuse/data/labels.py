"""The checks of a split's labels."""

import reprlib

import numpy as np
import pandas as pd

from posfuse.errors import InputError

KINDS = {"int", "str", "bool"}  # Python types that labels may have


def check_labels(name: str, labels: pd.Series) -> None:
    """Raise InputError where a label is missing or empty, has white space around it, or is of a
    type that is no class. `labels` (documents,); `name` says in messages where they come from.
    """
    is_missing = labels.isna().to_numpy(bool)
    kinds = set()
    for row, value in enumerate(labels.tolist()):  # a NumPy array makes integers of timestamps
        if is_missing[row] or (isinstance(value, str) and not value):
            raise InputError(f"{name}: no label in row {row}; label it or remove the row")
        if isinstance(value, str) and value != value.strip():
            raise InputError(
                f"{name}: label {reprlib.repr(value)} in row {row} begins or ends with white "
                "space; remove the white space"
            )
        kinds.add("list" if isinstance(value, np.ndarray) else type(value).__name__)
    if kinds - KINDS:
        raise wrong_kinds(name, kinds - KINDS)


def wrong_kinds(name: str, kinds: set[str]) -> InputError:
    """The error for labels of these types."""
    return InputError(
        f"{name}: labels are of type {', '.join(sorted(kinds))}; use integers or strings"
    )
