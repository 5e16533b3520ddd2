"""What a section of a report contains. A page and a terminal walk through a list of them."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure
from rich.console import RenderableType

from posfuse.report.table import Table, interval, signed

VERDICTS, TABLES, PAIRED = "Verdicts", "Tables", "Paired statistics"
TRAINING, RUNS, RESULTS, PLAN = "Training and mechanism", "Runs", "Results", "The plan"
CHAPTERS = (VERDICTS, RESULTS, TABLES, PAIRED, TRAINING, RUNS, PLAN)  # in the order of a page


@dataclass(frozen=True)
class Drawing:
    """A figure that is drawn when the page is written."""

    name: str  # of its files, without suffix
    draw: Callable[[], Figure]
    caption: str


@dataclass(frozen=True)
class Answer:
    """A row of the table at the top of a page: a verdict and the difference that it is about."""

    verdict: str  # a key of report.answers.SIGNS
    comparison: str  # what is compared, or a hypothesis
    mean: float = math.nan
    low: float = math.nan  # of the interval
    high: float = math.nan
    seeds: str = ""
    details: str = ""  # one or more sentences
    digits: int = 2

    @property
    def difference(self) -> str:
        """+4.10 (+2.00 to +6.20); empty without a result."""
        ends = interval(self.low, self.high, self.digits)
        return f"{signed(self.mean, self.digits)} {f'({ends})' if ends else ''}".rstrip()


@dataclass(frozen=True)
class Section:
    chapter: str = TABLES  # one of CHAPTERS
    lead: Sequence[str] = ()  # sentences above all chapters
    answers: Sequence[Answer] = ()
    margin: float = 0.0  # of all answers: the largest difference that does not matter; 0: not drawn
    unit: str = ""  # of the answers' differences
    drawings: Sequence[Drawing] = ()
    tables: Sequence[Table] = ()
    html: str = ""  # what is neither a figure nor a table; safe inside a page
    shown: Sequence[RenderableType] = ()  # on the terminal; a str is a line that is not broken
    notes: Sequence[str] = ()  # what could not be compared, and other remarks
    problems: Sequence[str] = ()  # damaged or contradictory inputs, which are left out
