"""Store the evidence for docs/findings.md: for each sweep a table of its records, the report's
tables and figures that the document shows, and the settings that all its runs share.

    python benchmarks/findings.py multirun/scale_surface multirun/controls

It writes docs/findings/<sweep>/ and replaces the text between each line <!-- <sweep>/<table> --> of
docs/findings.md and the next <!-- end --> by that table. tests/unit/test_findings.py compares the
document with these files.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from posfuse.analysis.evidence.collect import collect
from posfuse.analysis.statistics.comparisons import Criteria, compare
from posfuse.analysis.statistics.paired import t_interval
from posfuse.analysis.tables.paired_tables import conclusion
from posfuse.runs.records import DIAGNOSTICS, HISTORY

DOCS = Path(__file__).resolve().parents[1] / "docs"
DOCUMENT, FOLDER = DOCS / "findings.md", DOCS / "findings"
SHOWN = re.compile(r"<!-- (?P<sweep>[\w.-]+)/(?P<table>\w+) -->\n.*?<!-- end -->", re.DOTALL)
LINKED = re.compile(r"findings/(?P<sweep>[\w.-]+)/(?P<table>\w+)\.md")
FIGURE = re.compile(r"findings/(?P<sweep>[\w.-]+)/(?P<figure>\w+)\.svg")
SCALE = "settings.model.token_scale"
EPOCHS = ("first", "best")
INSIDE = ("norm_ratio", "gate_mean")
LAST = ("train_loss", "val_loss", "val_accuracy")
# Accuracies with changed positions, by column. Documents are cut so that the shifted table has
# enough rows; runs before commit cf0c102 used only cut documents.
WORTH = {
    "as they are": "accuracy",
    "tokens shuffled": "shuffled",
    "cut": "unshifted",
    "cut, rows shifted": "shifted",
}
WORTH_OF_CUT = {
    "cut": "accuracy",
    "cut, tokens shuffled": "shuffled",
    "cut, rows shifted": "shifted",
}
RECORD = [
    "data", "encoding", "fusion", "variant", "seed", "test.accuracy", "test.macro_f1", "test.loss",
    "validation.accuracy", "best_epoch", "epochs", "position.documents", "position.accuracy",
    "position.shuffled", "position.unshifted", "position.shifted", "position.offset", "parameters",
    "documents.train", "documents.test", "mean_tokens.train", "truncated_share.train",
    "peak_memory_bytes", "host.device", "host.threads", "commit",
]  # fmt: skip


def keep(sweep: Path, document: str) -> None:
    """Write the files of one sweep to docs/findings."""
    runs, problems = collect(sweep)
    if problems:
        sys.exit("\n".join(f"error: {problem}" for problem in problems))
    target = FOLDER / sweep.name
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    rows = runs.to_dict("records")
    runs = runs.join(pd.DataFrame([inside(run) | last_epoch(run) for run in rows]))
    settings = [
        c for c in runs if c.startswith(("settings.", "versions.")) and c != "settings.seed"
    ]
    varied = [c for c in settings if runs[c].astype(str).nunique() > 1]
    columns = [c for c in RECORD if c in runs]
    columns += [c for c in runs if c.startswith(("inside.", "last."))]
    runs[columns + varied].to_csv(target / "runs.csv", index=False, lineterminator="\n")
    shared = {c: runs[c].iloc[0] for c in settings if c not in varied and runs[c].notna().all()}
    plain = {k: v.item() if hasattr(v, "item") else v for k, v in shared.items()}
    (target / "shared.yaml").write_text(yaml.safe_dump(plain))
    (target / "position.md").write_text(position_table(runs))
    (target / "inside.md").write_text(inside_table(runs))
    (target / "verdicts.md").write_text(verdicts_table(runs))
    if SCALE in varied:
        (target / "scale_effect.md").write_text(scale_effect_table(runs))
    with tempfile.TemporaryDirectory() as out:
        report = [Path(sys.executable).parent / "posfuse-report", sweep, "--out", out]
        subprocess.run([*map(str, report)], check=True, stdout=subprocess.DEVNULL)
        kinds = ((SHOWN, "table", "md"), (LINKED, "table", "md"), (FIGURE, "figure", "svg"))
        for kind, group, end in kinds:
            for found in kind.finditer(document):
                name = f"{found[group]}.{end}"
                if found["sweep"] == sweep.name and not (target / name).exists():
                    shutil.copy(Path(out) / f"{group}s" / name, target / name)


def inside(run: dict[str, Any]) -> dict[str, float]:
    """From a run's diagnostics: the norms' ratio and the gate's mean after its first epoch and
    after its best one, "inside.<name>.first" and "inside.<name>.best"."""
    rows = pd.read_parquet(Path(run["folder"]) / DIAGNOSTICS).query("by == ''")
    values = rows.set_index(["name", "epoch"])["value"]
    epochs = dict(zip(EPOCHS, (1, run["best_epoch"]), strict=True))
    return {
        f"inside.{name}.{which}": float(values.get((name, epoch), float("nan")))
        for name in INSIDE
        for which, epoch in epochs.items()
    }


def last_epoch(run: dict[str, Any]) -> dict[str, float]:
    """Losses and validation accuracy after the last epoch, "last.<name>"."""
    last = pd.read_csv(Path(run["folder"]) / HISTORY).iloc[-1]
    return {f"last.{name}": float(last[name]) for name in LAST}


def verdicts_table(runs: pd.DataFrame) -> str:
    """Each difference to addition with the report's verdict, adjusted over all rows. If the
    sweep varies the token scale, both sides of a difference have the same scale."""
    criteria = Criteria()
    length = runs.get("length", runs["mean_tokens.train"])
    found, _ = compare(runs.assign(length=length), criteria)
    keys = ["data", "fusion"]
    if SCALE in runs and runs[SCALE].nunique() > 1:
        keys.append("scale")
        found["scale"] = found["variant"].map(runs.groupby("variant")[SCALE].first())
    columns = [*keys, "n", "difference", "95 % t", "p t", "p Holm", "p equiv. Holm", "verdict"]
    lines = [
        f"**Differences to {criteria.baseline}, and whether they are decided**",
        "",
        f"| {' | '.join(columns)} |",
        "| " + "--- | " * len(columns),
    ]
    for row in found.to_dict("records"):
        cell = [*(str(row[key]) for key in keys), str(row["n"]), f"{row['mean']:+.2f}"]
        cell.append(f"{row['low']:+.2f} to {row['high']:+.2f}")
        cell += [f"{row[p]:.3f}" for p in ("p_t", "p_holm", "p_equivalence_holm")]
        lines.append(f"| {' | '.join([*cell, conclusion(row, criteria)])} |")
    return "\n".join(lines) + "\n"


def inside_table(runs: pd.DataFrame) -> str:
    """One row per run whose token scale starts at the paper's, for operators whose output
    separates into a token part and a position part."""
    lines = [
        "**Inside the runs whose token scale starts at the paper's**",
        "",
        "| data | fusion | token scale | seed | accuracy | norm of token to position, epoch 1 "
        "| best epoch | gate, epoch 1 | best epoch |",
        "| " + "--- | " * 9,
    ]
    from_paper = runs[SCALE].isin(("sqrt_d", "learned"))
    shown = runs[from_paper & runs["inside.norm_ratio.best"].notna()]
    for run in shown.to_dict("records"):
        values = [run[f"inside.{name}.{which}"] for name in INSIDE for which in EPOCHS]
        texts = ["" if pd.isna(value) else f"{value:.2f}" for value in values]
        cell = [run["data"], run["fusion"], run[SCALE], str(run["seed"])]
        cell.append(f"{100 * run['test.accuracy']:.2f}")
        lines.append(f"| {' | '.join([*cell, *texts])} |")
    return "\n".join(lines) + "\n"


def position_table(runs: pd.DataFrame) -> str:
    """Accuracy of the trained models with changed positions: means over seeds, in percent."""
    keys = ["data", "fusion", *(["variant"] if runs["variant"].any() else [])]
    worth = WORTH if "position.unshifted" in runs else WORTH_OF_CUT
    lines = [
        "**What position is worth to the trained model**",
        "",
        f"| {' | '.join([*keys, 'n', 'documents', *worth])} |",
        "| " + "--- | " * (len(keys) + 2 + len(worth)),
    ]
    for key, group in runs.groupby(keys, sort=False):
        means = [f"{100 * group[f'position.{name}'].mean():.2f}" for name in worth.values()]
        documents = str(int(group["position.documents"].iloc[0]))
        lines.append(f"| {' | '.join([*key, str(len(group)), documents, *means])} |")
    return "\n".join(lines) + "\n"


def scale_effect_table(runs: pd.DataFrame) -> str:
    """Accuracy minus that at the paper's token scale, per operator, paired by seed."""
    lines = [
        "**Difference to the accuracy at the paper's token scale**",
        "",
        "| data | fusion | scale | n | difference | 95 % t |",
        "| " + "--- | " * 6,
    ]
    accuracy = 100 * runs.set_index(["data", "fusion", SCALE, "seed"])["test.accuracy"].sort_index()
    for (data, fusion), of_fusion in runs.groupby(["data", "fusion"], sort=False):
        for scale in of_fusion[SCALE].unique():
            if scale == "sqrt_d":
                continue
            differences = (
                accuracy[data, fusion, scale] - accuracy[data, fusion, "sqrt_d"]
            ).dropna()
            low, high = t_interval(differences)
            row = [data, fusion, scale, len(differences), f"{differences.mean():+.2f}"]
            lines.append(f"| {' | '.join(map(str, row))} | {low:+.2f} to {high:+.2f} |")
    return "\n".join(lines) + "\n"


def with_tables(document: str) -> str:
    """The document with its tables replaced by those of docs/findings."""

    def table(found: re.Match[str]) -> str:
        path = FOLDER / found["sweep"] / f"{found['table']}.md"
        return f"<!-- {found['sweep']}/{found['table']} -->\n{path.read_text()}<!-- end -->"

    return SHOWN.sub(table, document)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sweeps", type=Path, nargs="+", help="as multirun/scale_surface")
    document = DOCUMENT.read_text()
    for sweep in parser.parse_args().sweeps:
        keep(sweep, document)
    DOCUMENT.write_text(with_tables(document))


if __name__ == "__main__":
    main()
