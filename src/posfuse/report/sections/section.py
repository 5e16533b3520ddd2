"""The content of a section of a report. The page and the terminal show a list of sections."""

import math
from collections.abc import Callable, Sequence, Sized
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from rich.console import RenderableType

from posfuse.report.table import Row, Table
from posfuse.verdicts.sentences import size_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

VERDICTS, TABLES, PAIRED = "Verdicts", "Tables", "Paired statistics"
TRAINING, RUN_LIST, RESULTS, THE_PLAN = "Training and mechanism", "Runs", "Results", "The plan"
CHAPTERS = (VERDICTS, RESULTS, TABLES, PAIRED, TRAINING, RUN_LIST, THE_PLAN)  # as on a page
Shown = RenderableType | Table  # on the terminal


@dataclass(frozen=True)
class Drawing:
    """A figure that is drawn when the page is written."""

    name: str  # of its files, without suffix
    draw: "Callable[[], Figure]"
    caption: str


def drawing(draw: "Callable[..., Figure]", rows: Sized, *more: Any, caption: str) -> list[Drawing]:
    """The figure `draw(rows, *more)`, with the function's name; none without rows."""
    return [Drawing(draw.__name__, partial(draw, rows, *more), caption)] if len(rows) else []


@dataclass(frozen=True)
class Answer:
    """A row of the table at the top of a page: a verdict and its difference."""

    verdict: str  # a key of report.page.SIGNS
    comparison: str  # the compared operators, or a hypothesis
    mean: float = math.nan
    low: float = math.nan  # of the interval
    high: float = math.nan
    n: str = ""
    details: str = ""  # one or more sentences
    digits: int = 2
    cautions: str = ""  # separated by semicolons

    @property
    def difference(self) -> str:
        """+4.10 (+2.00 to +6.20); empty without a result."""
        size = size_text(self.mean, self.low, self.high, self.digits)
        return "" if math.isnan(self.mean) else size


def answer_of(row: Row, comparison: str, digits: int, details: str = "") -> Answer:
    """The answer of a comparison: a row with verdict, p_t, mean, low, high and n."""
    verdict = "not tested" if math.isnan(row["p_t"]) else row["verdict"]
    ends = row["low"], row["high"]
    return Answer(verdict, comparison, row["mean"], *ends, str(row["n"]), details, digits)


@dataclass(frozen=True)
class Section:
    """A section of a report: answers, figures, tables and notes."""

    chapter: str = TABLES  # one of CHAPTERS
    lead: Sequence[str] = ()  # the question and its answer in one sentence, above all chapters
    basis: Sequence[str] = ()  # sentences below the answers: how they were reached
    answers: Sequence[Answer] = ()
    margin: float = 0.0  # the largest difference that does not matter, for all; 0: not drawn
    unit: str = ""  # of the answers' differences
    counted: str = "seeds"  # what the answers' n counts
    is_listed: bool = False  # the terminal has all answers with their details
    drawings: Sequence[Drawing] = ()
    tables: Sequence[Table] = ()
    html: str = ""  # other content than figures and tables; safe inside a page
    shown: Sequence[Shown] = ()  # on the terminal; a str is a line without line breaks
    notes: Sequence[str] = ()  # about comparisons that are not possible, and other remarks
    problems: Sequence[str] = ()  # damaged or contradictory inputs, which are left out
