"""The report as one HTML page that opens from disk without a network."""

import importlib.metadata
import platform

import numpy as np
import pandas as pd
from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined, Template

import posfuse
from posfuse.analysis.claims.verdicts import Verdict, not_judged
from posfuse.analysis.drawings import Drawing
from posfuse.analysis.findings import Findings
from posfuse.analysis.statistics.comparisons import Criteria
from posfuse.analysis.tables.table import p_value

LIBRARIES = ("scipy", "scikit-learn", "pandas", "matplotlib")


def render(found: Findings, figures: list[Drawing], criteria: Criteria, command: str) -> str:
    """The page; every text that comes from configs and records is escaped."""
    return template("page.html.j2").render(
        **vars(found),
        sweep=found.runs["sweep_id"].iloc[0],
        figures=figures,
        criteria=criteria,
        command=command,
        made=made_with(found.runs),
        p_values=p_values,
        not_judged=not_judged(found.folded),
        tested=sum(not np.isnan(v.p_support) for v in found.verdicts),
        refutable=sum(not np.isnan(v.p_refute) for v in found.verdicts),
    )


def template(name: str, package: str = "posfuse.analysis") -> Template:
    """A template of a package, which may use those of this one; it escapes every text."""
    environment = Environment(
        loader=ChoiceLoader([PackageLoader(package, "."), PackageLoader("posfuse.analysis", ".")]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(name)


def p_values(verdict: Verdict) -> str:
    """The hypothesis that was tested for a verdict, and its two adjusted p-values."""
    support, refute = p_value(verdict.p_support), p_value(verdict.p_refute)
    tested = f"Tested: {verdict.evidence.tested}. " if verdict.evidence.tested else ""
    return f"{tested}Holm-adjusted p: support {support or 'none'}, refute {refute or 'none'}."


def made_with(runs: pd.DataFrame) -> list[tuple[str, str]]:
    """Versions, commit and device of the runs, and the versions that made the report."""
    rows = []
    for column in map(str, runs):
        if column.startswith("versions.") or column in ("commit", "host.device"):
            values = ", ".join(sorted({str(value) for value in runs[column]}))
            rows.append((f"runs: {column.removeprefix('versions.')}", values))
    made = {"posfuse": posfuse.__version__, "python": platform.python_version()}
    made |= {name: importlib.metadata.version(name) for name in LIBRARIES}
    return rows + [(f"report: {name}", version) for name, version in made.items()]
