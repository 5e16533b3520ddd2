"""Claims about the comparisons, and a verdict for each: supported, refuted or inconclusive.

A claim is shown by one p-value and refuted by another. What is claimed of several comparisons
must hold for each (the largest p, an intersection-union test); one counter-example refutes it
(the smallest p times their number, Bonferroni). Over the claims of a file each of the two kinds
of p-values is adjusted by Holm, so that the chance of any false "supported" is at most alpha.
"""

from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from posfuse.analysis import statistics as st
from posfuse.analysis.collect import CELL
from posfuse.analysis.comparisons import Criteria
from posfuse.analysis.evidence import KINDS, Evidence
from posfuse.config import one_line
from posfuse.errors import InputError

# The axes of `where`, and the column of the comparisons that each looks at.
AXIS_OF = {"regime": "data", **{axis: axis for axis in CELL}}


@dataclass
class Claim:
    name: str = "???"
    text: str = "???"
    kind: str = "???"  # a key of KINDS
    source: str = ""  # who says so, and where
    where: dict[str, Any] = field(default_factory=dict)  # which comparisons, by axis
    each: str | None = None  # an axis of which at least two values are needed
    than: str | None = None  # of less_stable: the fusion it is held against
    margin: float | None = None  # points; null: the report's own


@dataclass
class Claims:
    regimes: dict[str, list[str]] = field(default_factory=dict)  # corpora by regime
    claims: list[Claim] = field(default_factory=list)


@dataclass(frozen=True)
class Verdict:
    claim: Claim
    verdict: str  # supported, refuted, inconclusive
    p_support: float  # adjusted by Holm over the claims
    p_refute: float
    evidence: Evidence
    level: float  # the strictest of Holm's levels: enough for any order of the p-values

    @property
    def numbers(self) -> list[str]:
        """A line a comparison."""
        return self.evidence.numbers

    @property
    def settle(self) -> str:
        """What would decide an inconclusive claim, else empty."""
        return self.evidence.settle(self.level) if self.verdict == "inconclusive" else ""


def read_claims(path: Path | None = None) -> Claims:
    """The claims of a YAML file, or the paper's; raises InputError that names file and key."""
    name = str(path) if path else "claims.yaml"
    try:
        text = path.read_text() if path else files(__package__).joinpath("claims.yaml").read_text()
        merged = OmegaConf.merge(OmegaConf.structured(Claims), OmegaConf.create(text))
        found = OmegaConf.to_object(merged)
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"--claims: cannot read {name} ({error}); give a YAML file") from error
    except yaml.YAMLError as error:
        raise InputError(f"{name}: not YAML ({' '.join(str(error).split())})") from error
    except (OmegaConfBaseException, ValueError) as error:
        raise InputError(f"{name}: {one_line(error)}") from error
    assert isinstance(found, Claims)
    for claim in found.claims:
        _check(claim, found, f"{name}: claim {claim.name}")
    names = [claim.name for claim in found.claims]
    for name_twice in {n for n in names if names.count(n) > 1}:
        raise InputError(f"{name}: claim {name_twice} stands there twice; rename one")
    return found


def _check(claim: Claim, found: Claims, place: str) -> None:
    if claim.kind not in KINDS:
        raise InputError(f"{place}: kind {claim.kind!r}; use one of {', '.join(KINDS)}")
    if (claim.kind == "less_stable") != (claim.than is not None):
        raise InputError(f"{place}: `than` names a fusion for kind less_stable, and only there")
    if claim.margin is not None and not (
        np.isfinite(claim.margin) and (claim.kind != "negligible" or claim.margin > 0)
    ):
        raise InputError(f"{place}: margin {claim.margin}; use points, above 0 for negligible")
    for axis in [*claim.where, *([claim.each] if claim.each else [])]:
        if axis not in AXIS_OF:
            raise InputError(f"{place}: unknown axis {axis!r}; use one of {', '.join(AXIS_OF)}")
    regimes = claim.where.get("regime", [])
    for regime in regimes if isinstance(regimes, list) else [regimes]:
        if regime not in found.regimes:
            known = ", ".join(found.regimes) or "none: add regimes"
            raise InputError(f"{place}: unknown regime {regime!r}; the file has {known}")


def judge_claims(claims: Claims, comparisons: pd.DataFrame, criteria: Criteria) -> list[Verdict]:
    """A verdict for every claim from the rows of `compare`."""
    evidence = [_evidence(claim, claims, comparisons, criteria) for claim in claims.claims]
    support = st.holm([e.p_support for e in evidence])
    refute = st.holm([e.p_refute for e in evidence])
    level = criteria.alpha / max(int((~np.isnan(support)).sum()), 1)
    verdicts = []
    for claim, e, p, q in zip(claims.claims, evidence, support, refute, strict=True):
        verdict = "inconclusive"
        if p <= criteria.alpha:
            verdict = "supported"
        elif q <= criteria.alpha:
            verdict = "refuted"
        verdicts.append(Verdict(claim, verdict, float(p), float(q), e, level))
    return verdicts


def _evidence(
    claim: Claim, claims: Claims, comparisons: pd.DataFrame, criteria: Criteria
) -> Evidence:
    wanted = _wanted(claim, claims)
    rows = comparisons
    for axis, (values, _) in wanted.items():
        rows = rows[rows[AXIS_OF[axis]].isin(values)]
    wanting = _wanting(claim, wanted, comparisons if rows.empty else rows)
    if rows.empty:
        needs = "; ".join(wanting) or "all of this together"
        return Evidence(np.nan, np.nan, [], lambda _: f"needs runs with {needs}")
    default = 0.0 if claim.kind == "grows_with_length" else criteria.margin
    margin = default if claim.margin is None else claim.margin
    others = comparisons[comparisons["fusion"] == claim.than]
    found = KINDS[claim.kind](rows, margin, others)
    if not wanting:
        return found
    # Some of what is claimed is not there: it can be refuted, but not shown.
    needs, settle = "; ".join(wanting), found.settle
    return Evidence(
        np.nan, found.p_refute, found.numbers, lambda a: f"needs runs with {needs}; {settle(a)}"
    )


def _wanted(claim: Claim, claims: Claims) -> dict[str, tuple[list[Any], str]]:
    """The values that the claim names on each axis; for a regime its corpora and its name."""
    wanted = {}
    for axis, value in claim.where.items():
        values = list(value) if isinstance(value, list | tuple) else [value]
        if axis == "regime":
            corpora = [c for regime in values for c in claims.regimes[regime]]
            wanted[axis] = (corpora, ", ".join(values))
        else:
            wanted[axis] = (values, "")
    return wanted


def _wanting(
    claim: Claim, wanted: dict[str, tuple[list[Any], str]], rows: pd.DataFrame
) -> list[str]:
    """What the claim names and the rows lack; of a regime any one corpus will do."""
    wanting = []
    for axis, (values, regime) in wanted.items():
        found = set(rows[AXIS_OF[axis]])
        if axis == "regime" and not found & set(values):
            wanting.append(f"data={' or '.join(values)} ({regime})")
        elif axis != "regime" and (absent := [v for v in values if v not in found]):
            wanting.append(f"{axis}={','.join(map(str, absent))}")
    if claim.each and rows[AXIS_OF[claim.each]].nunique() < 2:
        wanting.append(f"at least two values of {claim.each}")
    return wanting
