"""The report as one HTML page that opens from disk without a network."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined

from posfuse.analysis.claims.verdicts import Verdict, not_judged
from posfuse.analysis.tables.formats import is_numeric
from posfuse.analysis.tables.table import Table, p_value


@dataclass(frozen=True)
class PageFigure:
    name: str
    svg: str  # trusted: made here, its texts escaped by matplotlib
    caption: str


def render(**parts: Any) -> str:
    """The page; every text that comes from configs and records is escaped."""
    environment = Environment(
        loader=PackageLoader(__package__, "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    verdicts = parts["verdicts"]
    return environment.get_template("page.html.j2").render(
        **parts,
        numeric=_numeric,
        p_values=p_values,
        not_judged=not_judged(parts["folded"]),
        tested=sum(not np.isnan(v.p_support) for v in verdicts),
        refutable=sum(not np.isnan(v.p_refute) for v in verdicts),
    )


def _numeric(table: Table, column: int) -> bool:
    return is_numeric([row[column] for row in table.rows])


def p_values(verdict: Verdict) -> str:
    """What was tested for a verdict, and its two adjusted p-values, in words."""
    for_it, against = p_value(verdict.p_support), p_value(verdict.p_refute)
    tested = f"Tested: {verdict.tested}. " if verdict.tested else ""
    return f"{tested}Holm-adjusted p for it {for_it or 'none'}, against it {against or 'none'}."
