"""The claims and their verdicts."""

import numpy as np
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from posfuse.report.page import SIGNS, TEMPLATES
from posfuse.report.sections.section import VERDICTS, Section
from posfuse.report.sweep import Sweep
from posfuse.report.table import p_value
from posfuse.verdicts.claims import ClaimVerdict, not_judged

FAMILY = (
    "The p-values of claims are adjusted by Holm's method over all claims. Those above are "
    "adjusted within each table."
)


def section(sweep: Sweep) -> Section:
    """The verdicts on all claims of the user, or on the paper's claims that have a comparison, with
    a line about the others."""
    verdicts = [v for v in sweep.verdicts if sweep.own_claims or v.numbers]
    folded = [v for v in sweep.verdicts if not sweep.own_claims and not v.numbers]
    shown: list[RenderableType] = [FAMILY] if verdicts else []
    for v in verdicts:
        block = Table.grid()
        block.add_column(width=13)
        block.add_column(overflow="fold")  # keeps the name of a variant whole
        block.add_row(v.verdict.upper(), Text(v.claim.text), style="bold")
        settle = [f"To settle it: {v.settle}"] if v.settle else []
        for line in (*v.numbers, p_values(v), *settle):
            block.add_row("", Text(line))
        shown.append(block)
    html = TEMPLATES.get_template("sections/claims.html.j2").render(
        verdicts=verdicts,
        folded=folded,
        not_judged=not_judged(folded),
        p_values=p_values,
        signs=SIGNS,
        alpha=sweep.criteria.alpha,
        tested=sum(not np.isnan(v.p_support) for v in verdicts),
        refutable=sum(not np.isnan(v.p_refute) for v in verdicts),
    )
    return Section(VERDICTS, html=html, shown=[*shown, *not_judged(folded)])


def p_values(verdict: ClaimVerdict) -> str:
    """The hypothesis that was tested for a verdict, and its two adjusted p-values."""
    support, refute = p_value(verdict.p_support), p_value(verdict.p_refute)
    tested = f", tested: {verdict.tested}" if verdict.tested else ""
    adjusted = f"Holm-adjusted p: support {support or 'none'}, refute {refute or 'none'}"
    return f"Claim {verdict.claim.name}{tested}; {adjusted}."
