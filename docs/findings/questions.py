"""The tables and the figure of docs/findings.md, as docs/findings/questions.yaml asks for them."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pandas as pd
import yaml
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from finding_tables import FOLDER, accuracies, judged
from posfuse.report.figures.style import QUIET, RC, look
from posfuse.report.page import RUNS
from posfuse.report.table import interval
from posfuse.statistics.cautions import TUNED
from posfuse.statistics.contrasts import EQUIVALENT, UNDECIDED
from posfuse.statistics.paired import t_interval
from posfuse.study import caveats
from posfuse.study.looks import HypothesisVerdict
from posfuse.study.plan import PLAN

ASKED: dict[str, Any] = yaml.safe_load((FOLDER / "questions.yaml").read_text(encoding="utf-8"))
WORDS = {  # the answer by verdict
    "supported": "Yes", "refuted": "No, the opposite", "equivalent": "No, about equal",
    "undecided": "Not decided",
}  # fmt: skip
NOT_RUN = "not yet run"
OPERATORS = {"gate_scalar": "scalar gate", "concat": "concatenation"}


def verdict_of(study: str, hypothesis: str) -> HypothesisVerdict | None:
    """What a study says about one of its hypotheses; None before it has decided anything."""
    if not has_rows(FOLDER / study):
        return None
    verdicts = judged(FOLDER / study)[2].verdicts
    (v,) = (v for v in verdicts if v.hypothesis.name == hypothesis)
    return v if v.decision else None


def has_rows(folder: Path) -> bool:
    return (folder / PLAN).exists() and (folder / RUNS).exists()


def difference(study: str, v: HypothesisVerdict) -> str:
    """The shown difference with its interval."""
    metric, d = judged(FOLDER / study)[0].study.measured, v.shown
    assert d is not None
    digits = metric.digits - 1
    unit = "" if metric.unit == "points" else f" {metric.unit}"
    return f"{d.mean:+.{digits}f} ({interval(d.low, d.high, digits)}){unit}"


def row_of(question: dict[str, Any]) -> list[str]:
    """Answer, difference, seeds. A question about several hypotheses names each in its cells."""
    if "hypotheses" not in question:
        return answer_of(question, question["hypothesis"])
    named = question["hypotheses"]
    answers = [answer_of(question, hypothesis) for hypothesis in named.values()]
    said, differences, seeds = zip(*answers, strict=True)
    cells = ("; ".join(map(": ".join, zip(named, own, strict=True))) for own in (said, differences))
    return [*cells, "; ".join(dict.fromkeys(seeds))]


def answer_of(question: dict[str, Any], hypothesis: str) -> list[str]:
    """Answer, difference and seeds of one hypothesis."""
    v = verdict_of(question["study"], hypothesis)
    if v is None or v.decision is None:
        return [NOT_RUN, "", ""]
    plan, runs, state = judged(FOLDER / question["study"])
    own = question.get("words", {})  # a direction first: it says more than a verdict
    answer = own.get(v.decision.result, own.get(v.verdict, WORDS[v.verdict]))
    answer += " yet" * (v.verdict == UNDECIDED and not state.is_finished)
    tested = runs[runs["stage"] == "testing"]
    is_tuned = TUNED in caveats.of_verdicts(plan, state, tested)[v.hypothesis.name]
    is_tuned = is_tuned or question.get("tuned", False)
    seeds = f"{v.decision.n}"
    if v.units != "seeds":
        seeds = f"{v.decision.n * plan.study.seeds_of_units} in {seeds} tunings"
    if v.all_seeds:
        seeds = f"{v.all_seeds.n}, decided at {seeds}"
    within = f", within ±{v.hypothesis.margin:g}" * (v.decision.result == EQUIVALENT)
    return [answer + " †" * is_tuned, difference(question["study"], v) + within, seeds]


def link(study: str) -> str:
    """A link to the page of a study, for docs/findings.md."""
    return f"[{study}](findings/{study}/README.md)" if (FOLDER / study / RUNS).exists() else study


def lines(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    first, *rest = (f"| {' | '.join(row)} |\n" for row in [heading, *rows])
    return "".join([first, "|---" * len(heading), "|\n", *rest])


def questions() -> str:
    rows = [[q["ask"], *row_of(q), link(q["study"])] for q in ASKED["questions"]]
    return lines(["question", "answer", "difference", "seeds", "study"], rows)


def again() -> str:
    """A hypothesis of a study, those of a later study with a better design that ask the same, and
    why the verdicts differ."""
    rows = []
    for row in ASKED["again"]:
        study, hypothesis = row["before"]
        first = verdict_of(study, hypothesis)
        assert first is not None
        cells = [asked_in(study, [hypothesis]), asked_in(row["after"][0], row["after"][1:])]
        rows.append([first.hypothesis.text, *cells, row["reason"]])
    return lines(["hypothesis", "before", "after", "reason"], rows)


def asked_in(study: str, hypotheses: Sequence[str]) -> str:
    """The verdicts of a study on these hypotheses, with the arms if there are several."""
    cells = []
    for v in (verdict_of(study, hypothesis) for hypothesis in hypotheses):
        assert v is not None
        arms = f"{v.hypothesis.arm} - {v.hypothesis.than} " * (len(hypotheses) > 1)
        cells.append(f"{arms}{v.verdict}, {difference(study, v)}")
    return f"[{study}]({study}/README.md): {'; '.join(cells)}"


def first_screen() -> str:
    # Without the studies that have not run, which the page of findings lists.
    shown = (q for q in ASKED["questions"] if "readme" in q and has_rows(FOLDER / q["study"]))
    asked = [[q["readme"], *row_of(q)] for q in shown]
    rows = [[*row[:2], *(cell.partition(", ")[0] for cell in row[2:])] for row in asked]
    return lines(["question", "answer", "difference", "seeds"], rows)


def claims() -> str:
    rows = [[c["claim"], c["reports"], *judgement(c)] for c in ASKED["claims"]]
    return lines(["the paper's claim", "the paper reports", "posfuse finds", "verdict"], rows)


def judgement(claim: dict[str, Any]) -> list[str]:
    """What the studies find, and whether they agree with the claim: those of real text, then those
    of a synthetic task."""
    finds, said = judged_by(claim["evidence"], claim["holds"])
    if "synthetic" in claim:
        found, verdict = judged_by(claim["synthetic"], claim["holds"])
        finds = "; ".join(filter(None, [finds, found]))
        said = f"{said or 'not tested on real text'}; on a synthetic task: {verdict}"
    return [finds or claim.get("finds", NOT_RUN), said or "not tested"]


def judged_by(evidence: Sequence[Sequence[str]], expected: str) -> tuple[str, str]:
    """The differences of these hypotheses, and how many of them agree with a claim; empty before a
    study has decided one."""
    found: dict[str, list[str]] = {}
    verdicts = []
    for study, hypothesis, name in evidence:
        if v := verdict_of(study, hypothesis):
            is_open = expected == "equivalent" and v.verdict in ("supported", "refuted")
            verdicts.append("undecided" if is_open and not is_beyond_margin(v) else v.verdict)
            sign = -1 if v.hypothesis.expects == "less" else 1
            gains = sum(sign * delta > 0 for delta in v.differences)
            counted = f"{gains} of {len(v.differences)} {v.units}"
            text = f"{name} {difference(study, v)}, {counted}"
            found.setdefault(study, []).append(text)
    finds = "; ".join(f"{link(study)}: {', '.join(own)}" for study, own in found.items())
    holds, open_ = verdicts.count(expected), verdicts.count("undecided")
    if not verdicts:
        return "", ""
    numbers = {"holds": holds, "does not hold": len(verdicts) - holds - open_, "undecided": open_}
    said = ", ".join(f"{what} in {n}" for what, n in numbers.items() if n)
    if not open_:
        said = {0: "does not hold", len(verdicts): "holds"}.get(holds, said)
    elif open_ == len(verdicts):
        said = "not decided"
    return finds, said


def is_beyond_margin(v: HypothesisVerdict) -> bool:
    """True if the whole interval is outside of the margin, which contradicts a negligible gain."""
    shown, margin = v.shown, v.hypothesis.margins.equivalence
    return shown is not None and (shown.low > margin or shown.high < -margin)


def listed() -> str:
    """All studies and sweeps with rows, for docs/findings/README.md."""
    rows = []
    for path in sorted(FOLDER.glob(f"*/{RUNS}")):
        folder, runs = path.parent, pd.read_csv(path)
        asked = "exploratory, without a plan"
        if (folder / PLAN).exists():
            asked = judged(folder)[0].study.question
        hours = f"{runs['core_seconds'].sum() / 3600:.1f}" if "core_seconds" in runs else ""
        own = f"[{folder.name}]({folder.name}/README.md)"
        rows.append([own, asked, str(len(runs)), hours])
    return lines(["study", "question", "runs", "core hours"], rows)


def gains() -> Iterator[dict[str, Any]]:
    """The gain of each operator over addition on real texts, with the table and with zeros.

    Arms with settings of their own (such as another token scale) are left out.
    """
    for name, texts in ASKED["lengths"].items():
        if not has_rows(FOLDER / name):
            continue
        study, values = judged(FOLDER / name)[0].study, accuracies(name)
        cut = pd.read_csv(FOLDER / name / RUNS).groupby("arm")["max_len"].first()
        cells = {}
        for arm in values:
            own = study.arms[arm]
            if not any(key.startswith(("model.", "optim.")) for key in own):
                fusion = own["fusion"].removesuffix("_linear_start")
                cells[fusion, own.get("encoding") == "none", int(cut[arm])] = values[arm]
        for (fusion, placebo, at), column in cells.items():
            if fusion in OPERATORS and ("add", placebo, at) in cells:
                own = (column - cells["add", placebo, at]).dropna()
                low, high = t_interval(own)
                yield {
                    "text": texts["title"], "words": texts["cut"][at], "fusion": fusion,
                    "placebo": placebo, "mean": own.mean(), "low": low, "high": high,
                }  # fmt: skip


def draw(path: Path) -> None:
    """Write the figure as SVG and PNG; filled marks are with the table, hollow ones with zeros."""
    found = pd.DataFrame(gains())
    # Texts of the same length are drawn side by side.
    texts = found[["words", "text"]].drop_duplicates()
    found["place"] = found["words"] * 1.4 ** texts.groupby("words").cumcount().reindex(
        found.index, method="ffill"
    )
    with mpl.rc_context({**RC, "svg.fonttype": "path"}):
        figure = Figure(figsize=(7.2, 3.2), layout="constrained")
        axis = figure.subplots()
        axis.axhline(0, color=QUIET, linewidth=0.8)
        groups = found.groupby(["fusion", "placebo"], sort=False)
        for i, ((fusion, placebo), own) in enumerate(groups):
            one = look(fusion)
            axis.errorbar(
                own["place"] * 1.06 ** (i - 1.5), own["mean"],
                [own["mean"] - own["low"], own["high"] - own["mean"]],
                label=f"{OPERATORS[fusion]}, {'table of zeros' if placebo else 'with position'}",
                color=one.color, marker=one.marker, mfc="white" if placebo else one.color,
                capsize=2, linestyle="none", elinewidth=1,
            )  # fmt: skip
        axis.set_xscale("log")
        ticks = found.drop_duplicates("place")
        labels = [f"{row.words}\n{row.text}".replace(" ", "\n") for row in ticks.itertuples()]
        axis.set_xticks(ticks["place"], labels)
        axis.xaxis.set_minor_locator(NullLocator())
        axis.set_xlabel("words of a document that the model reads, mean")
        axis.set_ylabel("gain over addition, points")
        figure.legend(loc="outside upper center", ncols=2, frameon=False)
        figure.savefig(path.with_suffix(".svg"), metadata={"Date": None})
        figure.savefig(path.with_suffix(".png"), dpi=200)


PARTS = {
    "questions": questions, "claims": claims, "studies": listed, "answers": first_screen,
    "again": again,
}  # fmt: skip
