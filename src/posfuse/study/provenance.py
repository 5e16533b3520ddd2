"""Whether a record is the result of a run that a study asked for, and when that run started."""

from collections.abc import Iterable
from datetime import datetime, timedelta

from posfuse.process.precision import FASTEST
from posfuse.runs.records import Record, fingerprint_of
from posfuse.study.plan import Plan

PRECISION = "trainer.precision"
APART = timedelta(minutes=10)  # by which the clocks of two machines may differ


def refusal(record: Record, seed: int, config: str, plan: Plan | None = None) -> str:
    """Why a record is not that of an arm's run with this seed; empty if it is.

    `config` is the fingerprint of the arm's config with seed 0. A test run names its `plan` and
    starts after it was frozen; records of earlier versions have neither key.
    """
    own = record.get("settings") or {}
    if record["fingerprint"] != fingerprint_of(own):
        return "its fingerprint does not fit its settings, or is that of another version"
    as_asked = [{**own, "seed": 0}]
    if PRECISION in own:  # a record has the one that `fastest` has chosen
        as_asked.append({**own, "seed": 0, PRECISION: FASTEST})
    if own.get("seed") != seed or config not in map(fingerprint_of, as_asked):
        return "has another configuration than the arm"
    if plan is None:
        return ""
    if record.get("plan", plan.digest) != plan.digest:
        return f"belongs to another plan, with digest {str(record['plan'])[:16]}"
    try:
        is_early = plan.frozen and "started" in record and _before(record, plan) > APART
    except (TypeError, ValueError):
        return f"its start {record['started']!r} is not a time in UTC"
    early = f"started at {record.get('started')}, before the plan was frozen at {plan.frozen}"
    return early if is_early else ""


def _before(record: Record, plan: Plan) -> timedelta:
    """How long before its plan a run started."""
    return datetime.fromisoformat(plan.frozen) - datetime.fromisoformat(record["started"])


def provenance(plan: Plan, results: Iterable[Record | None]) -> str:
    """What the records of the test runs say about the order of plan and runs."""
    if not plan.frozen:
        return "An earlier version froze this plan, and did not record when."
    runs = [record for record in results if record]
    known = [record for record in runs if "plan" in record and "started" in record]
    early = sum(_before(record, plan) > timedelta(0) for record in known)
    counts = {
        "Test runs of this plan that started later": len(known) - early,
        "Up to 10 minutes earlier, by the clock of their machine": early,
        "Test runs that state no plan or no start": len(runs) - len(known),
    }
    lines = [f"{what}: {n}." for what, n in counts.items() if n]
    return " ".join([f"Frozen at {plan.frozen}.", *lines])
