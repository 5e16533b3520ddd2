"""Claims about the comparisons, and a verdict for each: supported, refuted or undecided.

Each claim has one p-value for it and one against it. A claim about several comparisons must hold
for each of them (the largest p, an intersection-union test). One counter-example refutes it (the
smallest p times the number of comparisons, Bonferroni). Holm's method adjusts both kinds of
p-values over the claims of a file. So the chance of any false "supported" is at most alpha, if
differences over seeds are independent and about normal.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
from pydantic import Field

from posfuse.errors import InputError
from posfuse.evidence.collect import CELL
from posfuse.evidence.metric import ACCURACY, METRICS
from posfuse.evidence.settings import NO_TABLE
from posfuse.runs.schemas import Problems, Strict, one_of, read_as, refuse
from posfuse.statistics import paired as st
from posfuse.statistics.comparisons import Criteria, criteria_for
from posfuse.statistics.contrasts import REFUTED, SUPPORTED, UNDECIDED
from posfuse.statistics.second_differences import of_position, placebos
from posfuse.verdicts.kinds import EXTRAPOLATES, KINDS, Test, how_to_settle, p_values

# The axes of `where`, each with its column of the comparisons.
AXIS_OF = {"regime": "data", **{axis: axis for axis in CELL}}

OF = ("difference", "position")  # the gain, or the part of it from position
BASELINE = "needs --baseline"  # needed for a claim about differences from another fusion


# The rows of `compare` for the test split, and for the areas beyond the trained length.
Compared = tuple[pd.DataFrame, pd.DataFrame]


@dataclass
class Claim(Strict):
    name: str
    text: str
    kind: Annotated[str, one_of(KINDS)]
    source: Annotated[str, Field(description="the publication and its section")] = ""
    where: Annotated[dict[str, Any], Field(description="the comparisons, by axis")] = field(
        default_factory=dict
    )
    each: Annotated[str | None, Field(description="an axis that needs two values or more")] = None
    of: Annotated[str, one_of(OF)] = "difference"
    than: Annotated[str | None, Field(description="for less_stable: the other fusion")] = None
    margin: Annotated[float | None, Field(description="null: the report's, or 0")] = None
    metric: Annotated[str, one_of(METRICS)] = ACCURACY.name


@dataclass
class Claims(Strict):
    regimes: Annotated[dict[str, list[str]], Field(description="corpora by regime")] = field(
        default_factory=dict
    )
    claims: list[Claim] = field(default_factory=list)
    baseline: Annotated[str | None, Field(description="null: the report's")] = None


@dataclass(frozen=True)
class ClaimVerdict:
    """The verdict of the comparisons on a claim. If runs of the claim are missing, it can be
    refuted, but not supported."""

    claim: Claim
    needs: str = ""  # the missing runs
    tested: str = ""  # the hypothesis in words
    judged: str = ""  # the tested differences, if not the plain ones
    tests: Sequence[Test] = ()  # of each comparison
    settles: str = ""  # the text about how to decide it, for `how_to_settle`
    verdict: str = UNDECIDED  # or supported, or refuted
    p_support: float = np.nan  # adjusted by Holm over the claims, as p_refute
    p_refute: float = np.nan
    level: float = np.nan  # alpha / number of tested claims, the strictest of Holm's levels

    @property
    def numbers(self) -> list[str]:
        """A line for each comparison; empty if none matches the claim."""
        lines = [test.line for test in self.tests]
        return [self.judged, *lines] if self.judged and lines else lines

    @property
    def settle(self) -> str:
        """A text about how to decide an undecided claim; otherwise empty."""
        if self.verdict != UNDECIDED:
            return ""
        more = how_to_settle(self.tests, self.settles, self.level)
        return "; ".join(filter(None, [self.needs, more]))


def read_claims(path: Path | None = None) -> Claims:
    """The claims of a YAML file, or the paper's. Raises InputError with a line for each error."""
    claims = read_as(Claims, path or Path(__file__).with_name("claims.yaml"))
    problems = Problems()
    for i, claim in enumerate(claims.claims):
        problems.check(_check, claim, claims, f"claims[{i}]")
    names = Counter(claim.name for claim in claims.claims)
    problems += [f"claims: two are named {n}; rename one" for n in names if names[n] > 1]
    if problems:
        refuse(str(path or "claims.yaml"), problems)
    return claims


def _check(claim: Claim, claims: Claims, place: str) -> None:
    if (claim.kind == "less_stable") != (claim.than is not None):
        raise InputError(
            f"{place}.than: name a fusion for kind less_stable; remove it for other kinds"
        )
    if claim.than is not None and claim.than in _as_list(claim.where.get("fusion")):
        raise InputError(f"{place}.than: must be another fusion than that of `where`")
    if claim.of == "position" and "none" in _as_list(claim.where.get("encoding")):
        raise InputError(
            f"{place}: `of: position` compares with encoding none; remove none from where.encoding"
        )
    if claim.of == "position" and claim.kind == "less_stable":
        raise InputError(f"{place}: `of: position` is not for kind less_stable; remove it")
    if claim.margin is not None and claim.kind in ("every_seed_positive", "less_stable"):
        raise InputError(f"{place}.margin: is not for kind {claim.kind}; remove it")
    if claim.kind == "negligible" and claim.margin is not None and claim.margin <= 0:
        raise InputError(f"{place}.margin: must be above 0 for kind negligible")
    for axis, value in claim.where.items():
        values = _as_list(value)
        if not values or not all(isinstance(v, str) for v in values):
            raise InputError(
                f"{place}.where.{axis}: must be a name or a list of names, numbers in quotes "
                f"(got {value!r})"
            )
    for axis in filter(None, [*claim.where, claim.each]):
        if axis not in AXIS_OF:
            raise InputError(f"{place}: unknown axis {axis!r}; use one of {', '.join(AXIS_OF)}")
    for regime in _as_list(claim.where.get("regime", [])):
        if regime not in claims.regimes:
            known = f"use one of {', '.join(claims.regimes)}" if claims.regimes else "add `regimes`"
            raise InputError(f"{place}: unknown regime {regime!r}; {known}")


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def judge_claims(
    claims: Claims, compared: Mapping[str, Compared], criteria: Criteria
) -> list[ClaimVerdict]:
    """A verdict for every claim. `compared` has the rows by metric: those of the criteria's metric
    and of each claim's."""
    has_rows = not compared[criteria.metric.name][0].empty
    every = []
    for claim in claims.claims:
        of_test, of_areas = compared[claim.metric]
        if of_test.empty and has_rows:
            every.append(ClaimVerdict(claim, f"needs runs with the metric {claim.metric}"))
        else:
            rows = of_areas if claim.kind == EXTRAPOLATES else of_test
            own = criteria_for(criteria, METRICS[claim.metric])
            every.append(_test(claim, claims, rows, own))
    alpha, alone = criteria.alpha, [p_values(v.tests) for v in every]
    support = st.holm([np.nan if v.needs else p for v, (p, _) in zip(every, alone, strict=True)])
    tested = sum(not np.isnan(q) for _, q in alone)
    level = alpha / max(tested, 1)
    verdicts = []
    for v, p, q in zip(every, support, st.holm([q for _, q in alone]), strict=True):
        verdict = SUPPORTED if p <= alpha else REFUTED if q <= alpha else UNDECIDED
        adjusted = replace(v, p_support=float(p), p_refute=float(q), level=level)
        verdicts.append(replace(adjusted, verdict=verdict))
    return verdicts


def not_judged(verdicts: list[ClaimVerdict]) -> list[str]:
    """One line with the paper's claims that have no comparison, or no line."""
    unmatched = [v for v in verdicts if not v.numbers]
    if not unmatched:
        return []
    names = ", ".join(v.claim.name for v in unmatched)
    claims, match = ("claim", "matches") if len(unmatched) == 1 else ("claims", "match")
    other_baseline = unmatched[0].settle.startswith(BASELINE)  # then all of them
    why = f"no comparison ({unmatched[0].settle})" if other_baseline else "no runs here"
    return [f"{len(unmatched)} {claims} of the paper {match} {why}: {names}."]


def _test(
    claim: Claim, claims: Claims, comparisons: pd.DataFrame, criteria: Criteria
) -> ClaimVerdict:
    """The tests of a claim, before the adjustment."""
    if claims.baseline not in (None, criteria.baseline):
        return ClaimVerdict(claim, f"{BASELINE} {claims.baseline}")
    candidates = comparisons
    if "encoding" not in claim.where:  # runs without position count only for claims that name them
        candidates = comparisons[comparisons["table"] != NO_TABLE]
    rows, absent = _select(claim, claims, candidates)
    if rows.empty:
        tested = " tested beyond data.max_len" if claim.kind == EXTRAPOLATES else ""
        return ClaimVerdict(claim, f"needs runs{tested} {absent}")
    if claim.than == criteria.baseline:
        return ClaimVerdict(claim, f"than names the baseline {claim.than}; name another fusion")
    default = criteria.margin if claim.kind == "negligible" else 0.0
    margin = default if claim.margin is None else claim.margin
    others = comparisons[comparisons["fusion"] == claim.than]
    judged = ""
    if claim.of == "position":
        rows, judged = of_position(rows, placebos(comparisons, criteria), criteria.metric)
    tested, tests, settles = KINDS[claim.kind](rows, margin, others, criteria.metric)
    return ClaimVerdict(claim, absent and f"needs runs {absent}", tested, judged, tests, settles)


def _select(claim: Claim, claims: Claims, candidates: pd.DataFrame) -> tuple[pd.DataFrame, str]:
    """The comparisons of a claim, and the combinations of its values that they lack, as "with
    fusion=concat". One corpus of a regime is enough. A claim that does not name the axis variant is
    about runs without overrides."""
    regime_of = {corpus: name for name, corpora in claims.regimes.items() for corpus in corpora}
    is_allowed = (candidates["variant"] == "") | _names_variant(claim)
    if claim.than is not None:
        is_allowed &= candidates["fusion"] != claim.than
    if claim.each == "regime":
        is_allowed &= candidates["data"].isin(regime_of)
    is_selected, absent = pd.Series(False, candidates.index), []
    axes = sorted(claim.where, key="variant".__ne__)  # the variant first
    for combination in product(*(_choices(claim, claims, axis) for axis in axes)):
        is_named = pd.Series(True, candidates.index)
        for axis, (_, values) in zip(axes, combination, strict=True):
            is_named &= candidates[AXIS_OF[axis]].isin(values)
        is_selected |= is_named & is_allowed
        if not (is_named & is_allowed).any():
            names = " ".join(name for name, _ in combination if name != "variant=")
            words = [f"with {names}"] if names else []
            absent.append(" ".join([*words, *_other_variants(claim, candidates[is_named])]))
    rows = candidates[is_selected]
    # Encodings that fuse the same table, such as rope and sinusoidal, count as one.
    if claim.each:
        column = "table" if claim.each == "encoding" else AXIS_OF[claim.each]
        several = rows[column][rows[column] != NO_TABLE]
        several = several.map(regime_of) if claim.each == "regime" else several
        if several.nunique() < 2:
            tables = " with different tables" if column == "table" else ""
            absent.append(f"with at least two values of {claim.each}{tables}")
    known = [line for line in absent if line]
    return rows, "; ".join(known or ["with other settings"] * rows.empty)


def _names_variant(claim: Claim) -> bool:
    return "variant" in (*claim.where, claim.each)


def _choices(claim: Claim, claims: Claims, axis: str) -> list[tuple[str, list[Any]]]:
    """The values that a claim names on an axis, each in words and as the values of its column."""
    named = _as_list(claim.where[axis])
    if axis != "regime":
        return [(f"{axis}={v}", [v]) for v in named]
    corpora = [(v, claims.regimes[v]) for v in named]
    return [(f"data={' or '.join(names)} ({v})", names) for v, names in corpora]


def _other_variants(claim: Claim, rows: pd.DataFrame) -> list[str]:
    """How a claim without a variant can name that of these runs to match them."""
    variants = sorted(set(rows["variant"]) - {""})
    if _names_variant(claim) or not variants:
        return []
    more = " or another one" if len(variants) > 1 else ""
    named = f"`variant: {variants[0]}`{more}"
    return [f"without overrides (to judge those here, add {named} to `where`)"]
