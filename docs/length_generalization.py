"""Writes docs/length_generalization.md, a re-analysis of another study's per-seed results.

python docs/length_generalization.py
"""

from pathlib import Path

import pandas as pd
from scipy import stats

from posfuse.analysis.evidence.foreign import Columns, read_foreign
from posfuse.analysis.statistics.comparisons import Criteria
from posfuse.analysis.statistics.foreign import AHEAD, BEHIND, EQUIVALENT, compare_foreign, ranking

HERE = Path(__file__).parent
TABLE = HERE / "length_generalization" / "accuracy.csv"
CRITERIA = Criteria("none", margin=1.0)
START = """\
# Five position encodings and length: which rankings hold?

    posfuse-report --from docs/length_generalization/accuracy.csv --compare encoding \\
      --by dataset,split --where part=test --all-pairs --margin 1
    python docs/length_generalization.py    # writes this page

`posfuse-report --from TABLE.csv` judges the per-seed results of any study. This page applies it to
*The Impact of Positional Encoding on Length Generalization in Transformers* (Kazemnejad et al.,
NeurIPS 2023): decoder-only Transformers with five encodings, trained on short and tested on longer
sequences, 12 tasks with three seeds each. The numbers are the accuracies over all test lengths from
the results files of McGill-NLP/length-generalization, commit 40f8a445f976 (MIT license, Copyright
2023 McGill NLP). A [copy](length_generalization/accuracy.csv) and the
[license](length_generalization/LICENSE) are beside this page.

A difference within ±1 point counts as none here. All encodings of a task used the same seeds.
Whether runs with equal seeds share anything, such as initial values, is not recorded. If they do,
the paired test is the right one; if they share nothing, Welch's test is. Both are shown.
"""


def page() -> str:
    """The text of the page; every number in it is computed."""
    columns = Columns("seed", "encoding", "accuracy", ["dataset", "split"], {"part": "test"})
    results = read_foreign(TABLE, columns)
    paired, _ = compare_foreign(results, CRITERIA, all_pairs=True)
    welch, _ = compare_foreign(results, CRITERIA, paired=False, all_pairs=True)
    within = pd.concat(
        compare_foreign(part, CRITERIA, all_pairs=True)[0] for _, part in results.groupby("group")
    )
    against, _ = compare_foreign(results, CRITERIA)
    return "\n".join(
        [
            START,
            _decided(paired, welch, within),
            _rankings(results, within, paired),
            _against(against),
        ]
    )


def _decided(paired: pd.DataFrame, welch: pd.DataFrame, within: pd.DataFrame) -> str:
    rows = [
        ("Welch's t, no adjustment", welch["p_t"] <= 0.05, welch["p_equivalence"] <= 0.05),
        ("paired t, no adjustment", paired["p_t"] <= 0.05, paired["p_equivalence"] <= 0.05),
        ("paired t, Holm within each task", *_holm(within)),
        ("paired t, Holm over all comparisons", *_holm(paired)),
        ("Welch's t, Holm over all comparisons", *_holm(welch)),
    ]
    lines = [f"| {name} | {differ.sum()} | {same.sum()} |" for name, differ, same in rows]
    untested = int(paired["p_t"].isna().sum())
    return "\n".join(
        [
            f"## How many of {len(paired)} pairs of encodings are decided\n",
            "| test | different | equivalent within ±1 |",
            "|---|---|---|",
            *lines,
            f"\nIn {untested} pairs there is no test, because two encodings differ by exactly the "
            "same number\nwith every seed.\n",
        ]
    )


def _holm(frame: pd.DataFrame) -> tuple["pd.Series[bool]", "pd.Series[bool]"]:
    conclusion = frame["conclusion"]
    return conclusion.isin([AHEAD, BEHIND]), conclusion == EQUIVALENT


def _rankings(results: pd.DataFrame, within: pd.DataFrame, paired: pd.DataFrame) -> str:
    lines, shown, all_shown, neighbours = [], 0, 0, 0
    for group in dict.fromkeys(results["group"]):
        text, counts = ranking(group, results, within)
        shown, neighbours = shown + counts[">"], neighbours + sum(counts.values())
        all_shown += ranking(group, results, paired)[1][">"]
        lines.append(f"| {group} | {text.replace('_', chr(92) + '_')} |")
    return "\n".join(
        [
            "## Rankings\n",
            "Mean accuracy in %, best first. `>`: the neighbours are shown to differ, `=`: to be",
            "equivalent, `?`: their order is not shown (paired t, Holm within the task).\n",
            "| task | ranking |",
            "|---|---|",
            *lines,
            f"\n{shown} of {neighbours} neighbours are shown to be in this order; {all_shown} if "
            "Holm adjusts over all tasks.\n",
        ]
    )


def _against(frame: pd.DataFrame) -> str:
    """How often having no position encoding is ahead."""
    lines = []
    for name, part in frame.groupby("name"):
        ahead = int((part["mean"] < 0).sum())
        decided = part["conclusion"].value_counts()
        lines.append(
            f"| {name} | {ahead} of {len(part)} | {decided.get(BEHIND, 0)} | "
            f"{decided.get(AHEAD, 0)} | {decided.get(EQUIVALENT, 0)} |"
        )
    return "\n".join(
        [
            "## No position encoding against each other one\n",
            "The study's main claim is that a decoder without position encoding (`none`) is ahead "
            "of the\nothers. Paired t, Holm over all rows of this table's "
            f"{len(frame)} comparisons:\n",
            "| encoding | tasks in which `none` has the higher mean | `none` shown to be ahead | "
            "`none` shown to be behind | shown to be equivalent |",
            "|---|---|---|---|---|",
            *lines,
            "\nThree seeds decide the large differences only: with 2 degrees of freedom and "
            f"{len(frame)} comparisons a\nmean difference must be about "
            f"{_needed(len(frame)):.0f} times its standard error.\n",
        ]
    )


def _needed(comparisons: int) -> float:
    return float(stats.t.isf(0.05 / comparisons / 2, 2))


if __name__ == "__main__":
    (HERE / "length_generalization.md").write_text(page(), encoding="utf-8")
