"""The runs of the sweep without a record, and why."""

from markupsafe import escape

from posfuse.evidence.collect import failures
from posfuse.report.sections.section import MISSING, Section
from posfuse.report.sweep import Sweep


def section(sweep: Sweep) -> Section:
    absent, problems = sweep.missing
    failed, every = failures(sweep.folder, sweep.runs), len(sweep.runs) + len(absent)
    html = "<p>None. Every run of the sweep's last command has a record.</p>"
    if absent or failed:
        listed = "".join(f"<li>{escape(line)}</li>" for line in [*absent, *failed])
        html = f"<p>{len(absent)} of {every} runs have no record and are left out.</p>"
        html += f"<ul>{listed}</ul>"
    lines = [f"\nmissing: {len(absent)} of {every} runs", *(f"  {name}" for name in absent)]
    return Section(MISSING, html=html, shown=[*lines, *failed], problems=problems)
