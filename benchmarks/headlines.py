"""The three ratios and the three limits of docs/performance.md, read from results."""

from collections.abc import Callable
from dataclasses import dataclass

from performance_tables import shown
from stored import Result

CORPORA = {"agnews": "AG News", "imdb": "IMDB", "arxiv": "ArXiv"}  # of the training benchmark


@dataclass(frozen=True)
class Headline:
    title: str
    benchmark: str
    value: Callable[[Result], str]


def ratios(column: int) -> Callable[[Result], str]:
    """Ratios to the plain loop, of a column of the training benchmark's first table."""

    def value(result: Result) -> str:
        of = {(row[0], row[1]): row[column] for row in result.rows(0)}
        corpora = [corpus for corpus, system in of if system == "exact"]
        exact = ", ".join(f"{CORPORA[str(c)]} {of[c, 'exact']}" for c in corpora)
        fast = ", ".join(str(of[c, "fast"]) for c in corpora)
        return f"{exact} (`speed=fast`: {fast})"

    return value


def runs_per_hour(result: Result) -> str:
    at_once, threads, rate, ratio = max(result.rows(0), key=lambda row: row[2])
    return (
        f"{shown(ratio)}× with {at_once} at once (threads each: {threads}): {shown(rate)} per hour"
    )


def share_of_products(result: Result) -> str:
    rows = [row for row in result.rows(1) if row[1] == "exact"]
    return ", ".join(f"{CORPORA[str(row[0])]} {float(str(row[-1])[:-1]):.0f} %" for row in rows)


def memory(result: Result) -> str:
    rows = [row for row in result.rows(2) if row[0] == "arxiv"]
    if not rows:
        return "not measured"
    plain = next(row for row in rows if row[2] == "plain")
    exact = max((row for row in rows if row[2] == "exact"), key=lambda row: row[1])
    return (
        f"{shown(exact[3])} GB for {exact[1]} documents (plain loop: {shown(plain[3])} GB for "
        f"{plain[1]})"
    )


def besides_training(result: Result) -> str:
    seconds = {str(row[0]): row[1] for row in result.rows(0)}
    start = seconds["start to the first training step, logger=none"]
    further = seconds["a further run in the process, logger=none"]
    return f"{shown(start)} s to a sweep's first step, {shown(further)} s for each further run"


RATIOS = [
    Headline("Training, documents per second / the plain loop's", "training", ratios(3)),
    Headline("Evaluation, documents per second / the plain loop's", "training", ratios(5)),
    Headline("Runs per hour / those with one run at a time", "grid", runs_per_hour),
]
LIMITS = [
    Headline("Rate of matrix products in training / the machine's", "training", share_of_products),
    Headline("Peak memory of training at 4,096 tokens", "training", memory),
    Headline("Time besides training", "overhead", besides_training),
]
