"""The published numbers of Hallam & Tseng (2026), and a test whether ours agree with them."""

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np
from scipy import stats

ALPHA = 0.05
# Table 3 of the paper names RoPE and Relative; its notebooks run these tables at the input.
ENCODINGS = {"rope_features": "rope", "relative_table": "relative"}


@dataclass(frozen=True)
class Published:
    """Test accuracy in percent over n seeds. std is NaN if the paper prints none."""

    mean: float
    std: float
    n: float  # an integer; NaN in a table if the paper lacks the cell

    def disagrees(self, mean: float, std: float, n: int) -> bool:
        """True if our mean over n seeds differs by more than the two spreads allow.

        This is Welch's test on the summaries. A single seed disagrees if it is outside the
        published prediction interval. False if the paper prints no spread.
        """
        if np.isnan(self.std):
            return False
        if n < 2:
            reach = stats.t.ppf(1 - ALPHA / 2, self.n - 1) * self.std * (1 + 1 / self.n) ** 0.5
            return bool(abs(mean - self.mean) > reach)
        test = stats.ttest_ind_from_stats(
            mean, std, n, self.mean, self.std, self.n, equal_var=False
        )
        return bool(test.pvalue < ALPHA)


@cache
def numbers() -> dict[str, Any]:
    """The content of published.json: accuracies in percent, deltas as fractions."""
    content: dict[str, Any] = json.loads(
        files(__package__).joinpath("published.json").read_text(encoding="utf-8")
    )
    return content


def published_cell(table: int, data: str, encoding: str, fusion: str) -> Published | None:
    """The paper's cell in Table 1, 2 or 3, or None."""
    part = numbers()[{1: "table1", 2: "table2_arxiv", 3: "table3_arxiv"}[table]]
    encoding = ENCODINGS.get(encoding, encoding)
    if part.get("encoding", encoding) != encoding or (table > 1 and data != "arxiv"):
        return None
    row = {1: part.get(data), 2: part, 3: part.get(encoding)}[table]
    cell = row.get(fusion) if isinstance(row, dict) else None
    if isinstance(cell, list):
        return Published(cell[0], cell[1], part["seeds"])
    if isinstance(cell, dict):
        return Published(cell["accuracy"], np.nan, part["seeds"])  # Table 2 prints no spread
    return None


def published_latency(data: str, encoding: str, fusion: str, variant: str) -> str:
    """The latency in the paper's Table 2 and Figure 4; empty if they have none, and for a variant,
    which has other settings."""
    part = numbers()["table2_arxiv"]
    cell = part.get(fusion)
    if (data, encoding, variant) != ("arxiv", part["encoding"], "") or not isinstance(cell, dict):
        return ""
    return f"{cell['latency']}, {numbers()['figure4_arxiv']['latency_ms'][fusion]} ms"
