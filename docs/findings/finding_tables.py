"""Further tables of the pages of docs/findings, computed from the committed rows of the studies.

An interval is Student's 95 % interval of a mean difference over seeds, paired by seed. It is not
adjusted for several looks or comparisons.
"""

import re
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import pandas as pd
import yaml
from scipy import stats

from posfuse.config import CONF_DIR
from posfuse.evidence.metric import ACCURACY, BITS_PER_BYTE, Metric
from posfuse.report.page import RUNS
from posfuse.report.table import interval
from posfuse.statistics.paired import slopes, t_interval
from posfuse.study.looks import Progress, progress
from posfuse.study.plan import PLAN, Plan, load_plan
from posfuse.study.run_table import RECORD
from posfuse.study.scores import guesses
from posfuse.study.spec import Study

FOLDER = Path(__file__).resolve().parent
BAGS, STRINGS = "bags.csv", "strings.csv"  # of docs/findings/without_order.py
ENCODINGS = ["rope", "relative", "t5", "alibi"]
CELL = ["data", "encoding", "fusion"]
SECONDS = ["seconds.setup", "seconds.fit", "seconds.test"]
NOTE = "mean difference in points with its ordinary 95 % interval, paired by seed"


@cache
def judged(folder: Path) -> tuple[Plan, pd.DataFrame, Progress]:
    """The plan of a committed study, its runs and its verdicts."""
    plan = load_plan(folder / PLAN)
    runs = read_runs(folder / RUNS, plan.study)
    return plan, runs, progress(plan.study, runs[runs["stage"] == "testing"])


def read_runs(path: Path, study: Study) -> pd.DataFrame:
    """The rows of a runs.csv, with the settings of each run, which the file lacks."""
    runs = pd.read_csv(path)
    settings = {arm: {"settings": settings_of(study, arm)} for arm in runs["arm"].unique()}
    return runs.assign(**{RECORD: runs["arm"].map(settings)})


@cache
def _of_corpus(name: str) -> dict[str, Any]:
    """The arguments of a corpus of conf/data, those of the files that it extends included."""
    content = _content(f"data/{name}")
    others = [o for o in content.get("defaults", []) if isinstance(o, str) and o != "_self_"]
    arguments = (_of_corpus(other) for other in others)
    return {k: v for own in (*arguments, content.get("corpus") or {}) for k, v in own.items()}


def settings_of(study: Study, arm: str) -> dict[str, Any]:
    """The settings that say what an arm's seeds share, which rows of runs.csv lack: from the
    study's overrides and the files of conf/ that they name."""
    given = {**study.settings, **study.arms[arm]}
    settings: dict[str, Any] = {"data.split_seed": 0}
    for name in (study.base, f"seeds/{given.get('seeds', 'all')}"):
        data = _content(name).get("data") or {}
        settings |= {f"data.{key}": value for key, value in data.items() if key == "split_seed"}
    of_base = [o for o in _content(study.base).get("defaults", []) if isinstance(o, dict)]
    chosen = {key: name for own in of_base for key, name in own.items()}
    corpus = study.corpus(arm) or chosen.get("override /data")
    if not corpus or "split_seed" in _of_corpus(corpus):
        settings["data.corpus.split_seed"] = "seed"
    return settings | given


def _content(name: str) -> dict[str, Any]:
    """The content of a file of conf/; empty if there is none."""
    path = CONF_DIR / f"{name}.yaml"
    return (yaml.safe_load(path.read_text(encoding="utf-8")) or {}) if path.is_file() else {}


def accuracies(study: str, column: str = "test_accuracy") -> pd.DataFrame:
    """One row per test seed, one column per arm, in percent; a run that diverged guesses."""
    runs = pd.read_csv(FOLDER / study / RUNS).query("stage == 'testing'")
    guess = runs["arm"].map(guesses(runs, ACCURACY))
    runs[column] = runs[column].where(~runs["diverged"], guess)
    return runs.pivot(index="seed", columns="arm", values=column)


def change(differences: "pd.Series[float]", digits: int = 1) -> str:
    """The mean with its interval."""
    found = differences.dropna()
    ends = interval(*t_interval(found), digits=digits)
    return f"{found.mean():+.{digits}f} ({ends})"


def rows_of(heading: Sequence[str], rows: Sequence[Sequence[object]], caption: str) -> str:
    """A GitHub table with a caption."""
    lines = [heading, ["---"] * len(heading), *rows]
    return "\n".join([*(f"| {' | '.join(map(str, row))} |" for row in lines), "", caption, ""])


def by_group(
    study: str, groups: dict[str, list[str]], pairs: Sequence[tuple[str, str]],
    columns: dict[str, str], heading: str, caption: str,
) -> str:  # fmt: skip
    """Differences of arms "a_x" - "b_x" for each pair (a, b), averaged over the x of each group."""
    tables = [accuracies(study, column) for column in columns.values()]
    rows = []
    for title, group in groups.items():
        for a, b in pairs:
            of = [sum(t[f"{a}_{x}"] - t[f"{b}_{x}"] for x in group) / len(group) for t in tables]
            rows.append([title, f"{a} - {b}", *map(change, of)])
    return rows_of([heading, "difference", *columns], rows, f"{caption} Cells: {NOTE}.")


BY_ENCODING = partial(
    by_group, "encodings",
    {**{e: [e] for e in ENCODINGS}, "three without alibi": ENCODINGS[:-1], "all four": ENCODINGS},
    [("add", "none"), ("concat", "none"), ("concat", "add"), ("gate", "add")],
    {"accuracy": "test_accuracy"}, "in attention", "none: no fused table. 8 seeds.",
)  # fmt: skip
BY_LENGTH = partial(
    by_group, "extrapolation",
    {"both": ["duplicate", "index"], "missing_duplicate": ["duplicate"],
     "indirect_index": ["index"]},
    [("concat", "add"), ("gate", "add"), ("tupe", "add")],
    {"trained lengths": "test_accuracy", **{str(n): f"test_accuracy_at_{n}" for n in (20, 40, 80)}},
    "task", "Trained lengths: the test split, strings of up to 20 symbols. 20, 40, 80: strings of "
    "that length alone. 16 seeds.",
)  # fmt: skip


def strings() -> str:
    """Rules without order, and repeated strings, by task and test split."""
    drawn = pd.read_csv(FOLDER / "extrapolation" / STRINGS)
    rows = []
    for (task, split), own in drawn.groupby(["task", "split"], sort=False):
        total = own[["strings", "in_training", "most_frequent", "near_mark"]].sum(min_count=1)
        shares = 100 * total / total["strings"]
        cells = ["" if pd.isna(x) else f"{x:.1f}" for x in shares[["most_frequent", "near_mark"]]]
        length = str(split).rpartition("@")[2].replace("test", "trained lengths")
        rows.append([task, length, f"{shares['in_training']:.1f}", *cells])
    return rows_of(
        ["task", "test strings", "in training", "most frequent symbol", "left of x"], rows,
        "In %, over the strings of the 16 test seeds. In training: test strings that are training "
        "strings too. Most frequent symbol: accuracy of the rule that answers with a symbol that "
        "occurs most often in the string. Left of x: with one that occurs most often among the "
        "four letters to the left of x, whatever k is. Ties are drawn at random.",
    )  # fmt: skip


def four_layers() -> str:
    """The earlier runs of the paper's model on AG News."""
    runs = pd.read_csv(FOLDER / "agnews_four_layers" / RUNS)
    found = 100 * runs.pivot(index="seed", columns="fusion", values="test.accuracy")
    means = ", ".join(f"{name} {found[name].mean():.2f}" for name in found)
    rows = [
        [f"{name} - add", change(found[name] - found["add"], digits=2)]
        for name in ("concat", "gate_scalar")
    ]
    return rows_of(
        ["difference", "points"], rows,
        f"{NOTE[:1].upper()}{NOTE[1:]}, 3 seeds. Mean test accuracy in %: {means}.",
    )  # fmt: skip


def pilot() -> str:
    """What addition learns on long documents, by its settings and the documents it has read."""
    runs = pd.read_csv(FOLDER / "long_pilot" / RUNS)
    settings = ["token_scale", "lr", "batch_size", "training_documents", "precision"]
    measured = [name for name in runs if name.startswith("val_accuracy.")] + ["test_accuracy"]
    heads = [name.replace("_", " ").replace("val accuracy.", "read ") for name in measured]
    rows = [
        [*map(str, row[:5]), *(f"{value:.2f}" if value > 0 else "" for value in row[5:])]
        for row in runs[settings + measured].itertuples(index=False)
    ]
    return rows_of(
        [*(name.replace("_", " ") for name in settings), *heads], rows,
        "Validation accuracy in % by the number of documents that training has read, and test "
        "accuracy of the runs that ended. One run each.",
    )  # fmt: skip


def with_noise_of_tuning(study: str) -> str:
    """Comparisons of tuned arms with the simulated noise of one tuning in their intervals."""
    rates = (FOLDER.parent / "error_rates.md").read_text(encoding="utf-8")
    once = rates.partition("each tuned once: a difference found")[2].partition("\n**")[0]
    spreads = [float(x) for x in re.findall(rf"^\| {study} \| .*? \| (.*?) \|", once, re.M)]
    rows = []
    for v in judged(FOLDER / study)[2].verdicts:
        h, own = v.hypothesis, pd.Series(v.differences).dropna()
        if h.minus or h.expects != "greater":
            continue
        cells = []
        for spread in sorted(spreads):
            half = stats.norm.ppf(0.975) * (own.var() / len(own) + spread**2) ** 0.5
            cells.append(interval(own.mean() - half, own.mean() + half, digits=1))
        rows.append([f"{h.arm} - {h.than}", v.verdict, f"{own.mean():+.1f}", *cells])
    heads = [f"tuning noise {spread:g}" for spread in sorted(spreads)]
    return rows_of(
        ["difference", "verdict", "points", *heads], rows,
        "What one tuning may add: normal 95 % intervals over seeds, without and with the noise of "
        "tuning. Two identical operators that are tuned as here end at settings whose true "
        "accuracies differ with this standard deviation, in points "
        "([simulated](../../error_rates.md), uncertain). No correction for looks or families. "
        "This table changes no verdict; repeated tuning would measure the noise.",
    )  # fmt: skip


def tuned_against(study: str, untuned: str, but: str = "") -> str:
    """Addition with its chosen settings beside the operators of a study that has tuned nothing."""
    addition = accuracies(study)["add"]
    rows = []
    for arm, values in accuracies(untuned).items():
        test = stats.ttest_ind(addition, values, equal_var=False)
        ends = interval(*test.confidence_interval(), digits=1)
        difference = f"{addition.mean() - values.mean():+.1f} ({ends})"
        rows.append([arm, f"{values.mean():.2f}", difference])
    return rows_of(
        [f"arm of {untuned}", "accuracy", "tuned addition minus it"], rows,
        f"Exploratory. Addition with its chosen token scale and learning rate has "
        f"{addition.mean():.2f} %. The arms have the paper's token scale and the learning rate "
        f"1e-3, and nothing else differs{but}. The seeds are other ones, so the interval is "
        "Welch's 95 % interval for two independent samples, in points. The arms are not tuned and "
        "may improve too.",
    )  # fmt: skip


def without_order() -> str:
    """What shuffling the words changes in the gain of the gate, and the gate beside scale 1."""
    of = accuracies("long_order")
    gain, shuffled = of["gate"] - of["add"], of["gate_shuffled"] - of["add_shuffled"]
    rows = [
        ["gate - add", change(gain)],
        ["gate_shuffled - add_shuffled", change(shuffled)],
        ["the first minus the second", change(gain - shuffled)],
        ["add_one - gate", change(of["add_one"] - of["gate"])],
    ]
    return rows_of(["difference", "points"], rows, f"Exploratory. {NOTE.capitalize()}, 8 seeds.")


def growth() -> str:
    """The gain of the gate by length, with position and with zeros, and its slope."""
    of, lengths = accuracies("long_by_length"), [128, 512, 1024]
    gains = {
        name: pd.DataFrame({n: of[f"gate{end}_{n}"] - of[f"add{end}_{n}"] for n in lengths})
        for name, end in (("with position", ""), ("with a table of zeros", "_none"))
    }
    first, second = gains.values()
    rows = [
        [name, *(change(own[n]) for n in lengths), change(pd.Series(slopes(own, lengths)))]
        for name, own in {**gains, "the first minus the second": first - second}.items()
    ]
    return rows_of(
        ["gate - add", *(f"{n:,} words" for n in lengths), "per doubling of the length"], rows,
        f"Exploratory. {NOTE.capitalize()}, {len(of)} seeds. Per doubling: the slope of a line "
        "over the logarithm of the length, fitted to each seed.",
    )  # fmt: skip


GRIDS = {  # sweeps without a plan, by sweep_id: metric, heading of the texts, what was tested
    "positions": (
        ACCURACY, "task", "strings of the trained lengths / of 40, 80 and 160 symbols",
    ),
    "language_model_grid": (
        BITS_PER_BYTE, "text", "windows of 64 bytes as in training / of 128 and 256 bytes",
    ),
}  # fmt: skip


def measured(runs: pd.DataFrame, metric: Metric) -> list[str]:
    """The columns of runs with a metric on the test split and at the test lengths."""
    return [name for name in runs if re.fullmatch(rf"(test|lengths\.\d+)\.{metric.name}", name)]


def by_operator(sweep: str) -> str:
    """Means over seeds: a row for each corpus and encoding, a column for each operator."""
    (metric, heading, tested), runs = GRIDS[sweep], pd.read_csv(FOLDER / sweep / RUNS)
    means = metric.factor * runs.groupby(CELL, sort=False)[measured(runs, metric)].mean()
    operators = list(runs["fusion"].unique())
    rows = []
    for data, encoding in dict.fromkeys(zip(runs["data"], runs["encoding"], strict=True)):
        values = (means.loc[(data, encoding, name)] for name in operators)
        cells = (" / ".join(f"{x:.{metric.digits - 1}f}" for x in own) for own in values)
        rows.append([data, encoding, *cells])
    (seeds,) = set(runs.groupby(CELL)["seed"].nunique())
    hours = runs[SECONDS].to_numpy().sum() / 3600
    return rows_of(
        [heading, "encoding", *operators], rows,
        f"Test {metric.level}, mean over {seeds} seeds: {tested}. "
        f"{len(runs)} runs, {hours:.1f} core hours.",
    )  # fmt: skip


def position(folder: Path) -> str:
    """What position is worth to each arm that ran with a table of zeros too; empty without."""
    if judged(folder)[0].study.metric != "accuracy":
        return ""
    found = accuracies(folder.name)
    own = [arm for arm in found if f"{arm}_none" in found]
    rows = [[arm, change(found[arm] - found[f"{arm}_none"])] for arm in own]
    caption = f"The arm minus the same arm with a table of zeros: {NOTE}, {len(found)} seeds."
    if (bags := folder / BAGS).exists():
        bag = pd.read_csv(bags)
        assert list(bag["seed"]) == list(found.index)
        rows.append(["bag of words: accuracy in %", f"{bag['bag_of_words'].mean():.2f}"])
        caption += " Bag of words: mean test accuracy of logistic regression on TF-IDF, with the "
        caption += "same words, documents and splits."
    return rows_of(["arm", "with position minus without"], rows, caption) if rows else ""


# By the folder of docs/findings.
TABLES: dict[str, Sequence[Callable[[], str]]] = {
    "encodings": [BY_ENCODING],
    "extrapolation": [BY_LENGTH, strings],
    "agnews_four_layers": [four_layers],
    "long_by_length": [growth],
    "long_order": [without_order],
    "long_pilot": [pilot],
    **{name: [partial(with_noise_of_tuning, name)] for name in ("own_best", "operator_or_scale")},
    "position_agnews": [partial(tuned_against, "position_agnews", "text_agnews")],
    "position_imdb": [partial(tuned_against, "position_imdb", "text_imdb")],
    "position_bbc": [
        partial(
            tuned_against,
            "position_bbc",
            "text_bbc",
            ", except that the later corpus has two articles fewer, which are duplicates",
        ),
    ],
    **{name: [partial(by_operator, name)] for name in GRIDS},
}
