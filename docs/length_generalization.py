"""Writes docs/length_generalization.md, a re-analysis of another study's per-seed results.

python docs/length_generalization.py
python docs/length_generalization.py --runs multirun/copy_reverse    # copies their results first
"""

import argparse
import textwrap
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import stats

from posfuse.evidence.foreign import Columns, read_foreign
from posfuse.report.table import p_value
from posfuse.runs import records
from posfuse.statistics.comparisons import Criteria
from posfuse.statistics.contrasts import AHEAD, BEHIND, EQUIVALENT
from posfuse.statistics.group_comparisons import compare_foreign, over_groups, rankings

HERE = Path(__file__).parent
TABLE = HERE / "length_generalization" / "accuracy.csv"
OWN = HERE / "length_generalization" / "copy_reverse.csv"  # results of experiment=copy_reverse
CRITERIA = Criteria("none", margin=1.0)
NAMES = {"abs_sinusoid": "sinusoidal", "rotary": "rope", "t5_relative_bias": "t5"}  # theirs: ours
TRAINED = 20  # letters
EXACT, GIVEN, GREEDY = "exact_match", "accuracy", "greedy_accuracy"  # of a record
NEAR = (1, 0, 2, 3, 4)  # a ranking with a tau of 0.8 to 0, 1, 2, 3, 4
READING = """
The rankings agree in one point: t5 and alibi are ahead of rope on longer copies, in posfuse's
runs and in all five splits of the study. `none` differs most. It is first or second in six of the
study's eight splits, while the small models do not learn even 20 letters with it. Only with
rope do they learn to reverse 20 letters well, so the ranking beyond 20 compares mostly failures."""
OVERALL = """
On these splits, `none` is ahead of alibi, rotary and abs_sinusoid, also with further seeds. Its
lead over t5_relative_bias is undecided in each row. Whether `none` is ahead on further tasks is
undecided, too: with data sets counted, four are too few for any of its leads. The rows that count
splits treat five splits of one data set as independent. But splits of one data set resemble each
other, so the p-values of these rows are too small.
"""
ZEROS = "pcfg productivity"  # all results are 0, and three encodings lack a seed
COUNTED = [  # what is counted, what conclusions are about, its columns, the split that is left out
    ("seeds", "new seeds of these splits", ["seed"], ""),
    ("seeds, without pcfg productivity", "new seeds of 11 splits", ["seed"], ZEROS),
    ("splits", "new splits, if independent", ["dataset", "split"], ""),
    ("data sets", "new data sets", ["dataset"], ""),
]
TASKS = {"copy": "s2s_copy", "reverse": "s2s_reverse"}
START = """\
# Five position encodings and length: which rankings hold?

    posfuse report --from docs/length_generalization/accuracy.csv --compare encoding \\
      --by dataset,split --where part=test --all-pairs --margin 1
    posfuse report --from docs/length_generalization/accuracy.csv --compare encoding \\
      --by dataset,split --where part=test --baseline none --margin 1 --overall dataset
    python docs/length_generalization.py    # writes this page

`posfuse report --from TABLE.csv` judges the per-seed results of any study. This page applies it to
*The Impact of Positional Encoding on Length Generalization in Transformers* (Kazemnejad et al.,
NeurIPS 2023): decoder-only Transformers with five encodings, trained on short and tested on longer
sequences, 12 splits of four data sets (two of pcfg, five of s2s_copy, three of s2s_reverse, two of
scan) with three seeds each. The numbers are the accuracies over all test lengths from the results
files of McGill-NLP/length-generalization, commit 40f8a445f976 (MIT license, Copyright 2023 McGill
NLP). A [copy](length_generalization/accuracy.csv) and the
[license](length_generalization/LICENSE) are beside this page.

A difference within ±1 point counts as none here. All encodings used the same three seeds; in the
split `productivity` of pcfg, three encodings lack one of them. In that split each result is 0 %.
It is not recorded whether runs with equal seeds share anything, such as initial values. If they
share something, the paired test is right; if they share nothing, Welch's test is. Both are shown.
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
    together = [
        (what, about, _together(replace(columns, units=units), without))
        for what, about, units, without in COUNTED
    ]
    return "\n".join(
        [
            START,
            _decided(results, paired, welch, within),
            _rankings(results, within, paired),
            _against(against),
            _overall(together),
            _own_rankings(),
        ]
    )


def _together(columns: Columns, without: str) -> pd.DataFrame:
    """The comparisons with CRITERIA's baseline over all splits but one."""
    results = read_foreign(TABLE, columns)
    means, _ = over_groups(results[results["group"] != without], columns.units == ["seed"])
    return compare_foreign(means, CRITERIA)[0]


def _decided(
    results: pd.DataFrame, paired: pd.DataFrame, welch: pd.DataFrame, within: pd.DataFrame
) -> str:
    rows = [
        ("Welch's t, no adjustment", welch["p_t"] <= 0.05, welch["p_equivalence"] <= 0.05),
        ("paired t, no adjustment", paired["p_t"] <= 0.05, paired["p_equivalence"] <= 0.05),
        ("paired t, Holm within each split", *_holm(within)),
        ("paired t, Holm over all comparisons", *_holm(paired)),
        ("Welch's t, Holm over all comparisons", *_holm(welch)),
    ]
    lines = [f"| {name} | {differ.sum()} | {same.sum()} |" for name, differ, same in rows]
    untested = paired[paired["p_t"].isna()]
    of_zeros = int((untested["group"] == ZEROS).sum())
    means = results.groupby(["group", "name"])["value"].mean()
    same = paired[paired["verdict"] == EQUIVALENT]
    ends = [(row.group, name) for row in same.itertuples() for name in (row.name, row.than)]
    equal = [
        f"{' and '.join(sorted([row.name, row.than]))} in {row.group}" for row in same.itertuples()
    ]
    failing = (
        f"The equivalent pairs are {', and '.join(equal)}. Each of these has an accuracy of at "
        f"most {means[ends].max():.2f} %: two encodings that fail, not two that work equally well."
    )
    return "\n".join(
        [
            f"## How many of {len(paired)} pairs of encodings are decided\n",
            "| test | different | equivalent within ±1 |",
            "|---|---|---|",
            *lines,
            f"\nIn {len(untested)} pairs there is no test, because two encodings differ by exactly "
            "the same number\nwith every seed; "
            f"{of_zeros} of these pairs are in {ZEROS}, where all results are 0 %.\n",
            textwrap.fill(failing, 100) + "\n",
        ]
    )


def _holm(frame: pd.DataFrame) -> tuple["pd.Series[bool]", "pd.Series[bool]"]:
    verdict = frame["verdict"]
    return verdict.isin([AHEAD, BEHIND]), verdict == EQUIVALENT


def _rankings(results: pd.DataFrame, within: pd.DataFrame, paired: pd.DataFrame) -> str:
    of_task = rankings(results, within, CRITERIA)
    lines = [
        f"| {group} | {text.replace('_', chr(92) + '_')} |"
        for group, text in zip(of_task["group"], of_task["ranking"], strict=True)
    ]
    shown, neighbours = of_task["shown"].sum(), of_task["of"].sum()
    all_shown = rankings(results, paired, CRITERIA)["shown"].sum()
    return "\n".join(
        [
            "## Rankings\n",
            "Mean accuracy in %, best first. `>`: the neighbours are shown to differ, `=`: to be",
            "equivalent, `?`: their order is not shown (paired t, Holm within the split).\n",
            "| split | ranking |",
            "|---|---|",
            *lines,
            f"\n{shown} of {neighbours} neighbours are shown to be in this order; {all_shown} if "
            "Holm adjusts over all splits.\n",
        ]
    )


def _against(frame: pd.DataFrame) -> str:
    """How often having no position encoding is ahead."""
    lines = []
    for name, part in frame.groupby("name"):
        ahead = int((part["mean"] < 0).sum())
        decided = part["verdict"].value_counts()
        lines.append(
            f"| {name} | {ahead} of {len(part)} | {decided.get(BEHIND, 0)} | "
            f"{decided.get(AHEAD, 0)} | {decided.get(EQUIVALENT, 0)} |"
        )
    tested = frame["p_t"].dropna()
    decided = int((frame["p_holm"] <= CRITERIA.alpha).sum())
    first, last = (_needed(len(tested) - rank) for rank in (0, decided - 1))
    return "\n".join(
        [
            "## No position encoding against each of the others\n",
            "The study's main claim is that a decoder without position encoding (`none`) is ahead "
            "of the\nothers. One split at a time, paired t, Holm over this table's "
            f"{len(frame)} comparisons:\n",
            "| encoding | splits in which `none` has the higher mean | `none` shown to be ahead | "
            "`none` shown to be behind | shown to be equivalent |",
            "|---|---|---|---|---|",
            *lines,
            "\nThree seeds decide the large differences only: with 2 degrees of freedom, Holm's "
            f"adjustment of the {len(tested)}\ncomparisons that have a test asks for mean "
            f"differences of {last:.0f} to {first:.0f} times their standard error.\n",
        ]
    )


def _overall(together: list[tuple[str, str, pd.DataFrame]]) -> str:
    """How far having no position encoding is ahead in the mean over splits."""
    lines = [
        f"| {what} | {about} | {row.name} | {row.n} | {-row.mean:+.1f} | "
        f"{-row.high:+.1f} to {-row.low:+.1f} | {p_value(row.p_holm)} |"
        for what, about, frame in together
        for row in frame.itertuples()
    ]
    return "\n".join(
        [
            "## The splits together\n",
            "The claim is about all tasks. Its test is a paired t-test of the mean over the "
            "splits, with\nHolm over the four encodings.\n",
            "| counted (n) | conclusion about | encoding | n | lead of `none` in points | 95 % t | "
            "p Holm |",
            "|---|---|---|---|---|---|---|",
            *lines,
            OVERALL,
        ]
    )


def _needed(comparisons: int) -> float:
    """The t of two degrees of freedom that decides the smallest of these p-values by Holm."""
    return float(stats.t.isf(0.05 / comparisons / 2, 2))


def own_results(sweep: Path) -> pd.DataFrame:
    """The results of each run of a sweep by length in letters, as shares: strings that are wholly
    right, and letters."""
    rows = []
    for path in sorted(sweep.rglob(records.RESULT)):
        record = records.read_result(path)
        for symbols, found in record["lengths"].items():
            own = record["data"], int(symbols) // 2, record["encoding"], record["seed"]
            rows.append((*own, found[EXACT], found[GIVEN], found[GREEDY]))
    key = ["task", "letters", "encoding", "seed"]
    frame = pd.DataFrame(rows, columns=[*key, EXACT, GIVEN, GREEDY])
    return frame.sort_values(key, ignore_index=True)


def _own_rankings() -> str:
    """The rankings of posfuse's small models beside those of the study."""
    lines = [
        "## Small models on copy and reverse\n",
        "    posfuse train -m experiment=copy_reverse",
        "    python docs/length_generalization.py --runs multirun/copy_reverse\n",
        "posfuse's models of two layers and d = 64 learn the same kind of task on 1 to 20 letters.",
        "The level of their accuracy says nothing about models of 107 million parameters, so the",
        "ranking of the encodings is compared. On longer strings the study's accuracy is over 21",
        "to 40 letters, and posfuse's is the mean over 25, 30, 35 and 40; at 40 alone each",
        "encoding of the study has accuracy 0 in five of eight splits. Kendall's tau is between",
        "the five encodings' mean accuracies: 1 is the same ranking, -1 the opposite one. Equal",
        "means are ties (tau-b).\n",
    ]
    if not OWN.exists():
        return "\n".join([*lines, "No results of these runs are here yet.\n"])
    own, theirs = pd.read_csv(OWN), pd.read_csv(TABLE).replace({"encoding": NAMES})
    theirs = theirs[theirs["part"] == "test"]
    lines += ["| task | strings | accuracy in % | seeds | tau |", "|---|---|---|---|---|"]
    for task, dataset in TASKS.items():
        mine = own[own["task"] == task]
        longer = mine[mine["letters"] > TRAINED]
        lines.append(_ranked(f"{task}, posfuse | 20", mine[mine["letters"] == TRAINED], EXACT))
        lines.append(_ranked(f"{task}, posfuse | 25 to 40", longer, EXACT))
        mean = longer.groupby("encoding")[EXACT].mean()
        for split, other in theirs[theirs["dataset"] == dataset].groupby("split"):
            of_other = other.groupby("encoding")["accuracy"].mean()
            tau = stats.kendalltau(mean, of_other.reindex(mean.index)).statistic
            shown = "undefined" if np.isnan(tau) else f"{tau:+.2f}"
            lines.append(_ranked(f"{dataset} {split} | 21 to 40", other, "accuracy", shown))
    same, near = (stats.kendalltau(range(5), order).pvalue for order in (range(5), NEAR))
    end = f"\nWith five encodings a tau of 1 has a two-sided p of {same:.3f}, 0.8 of {near:.3f}."
    return "\n".join([*lines, end, READING, *_by_letter(own), ""])


def _by_letter(own: pd.DataFrame) -> list[str]:
    """The share of letters that are right, by length."""
    lengths = sorted(own["letters"].unique())
    lines = [
        "\nRight letters of the answer in %, mean over seeds: given the true letters before them "
        "/\ndecoded greedily, so that a model reads its own errors.\n",
        "| task | encoding | " + " | ".join(f"{n} letters" for n in lengths) + " |",
        "|---|---|" + "---|" * len(lengths),
    ]
    means = 100 * own.groupby(["task", "encoding", "letters"])[[GIVEN, GREEDY]].mean()
    for task, encoding in dict.fromkeys(zip(own["task"], own["encoding"], strict=True)):
        of = means.loc[task, encoding]
        cells = [f"{of.at[n, GIVEN]:.1f} / {of.at[n, GREEDY]:.1f}" for n in lengths]
        lines.append(f"| {task} | {encoding} | " + " | ".join(cells) + " |")
    return lines


def _ranked(name: str, part: pd.DataFrame, column: str, tau: str = "") -> str:
    mean = 100 * part.groupby("encoding")[column].mean().sort_values(ascending=False)
    text = ", ".join(f"{encoding} {value:.1f}" for encoding, value in mean.items())
    return f"| {name} | {text} | {part['seed'].nunique()} | {tau} |"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=Path, help="folder of a finished sweep of copy_reverse")
    arguments = parser.parse_args()
    if arguments.runs:
        own_results(arguments.runs).to_csv(OWN, index=False)
    (HERE / "length_generalization.md").write_text(page(), encoding="utf-8")
