"""The studies in docs: every verdict, table and number follows from the committed plan and rows."""

import itertools
import re

import numpy as np
import pandas as pd
import pytest
import yaml
from scipy import stats

import finding_tables
import grids
import studies
import without_order
from posfuse.analysis.evidence import bag_of_words
from posfuse.config import CONF_DIR, DataConfig

DOCS = CONF_DIR.parent / "docs"
PLANS = [path.parent for path in sorted(DOCS.glob("findings/*/plan.yaml"))]
KEPT = [folder for folder in PLANS if (folder / "runs.csv").exists()]  # the others are not finished
FOLDERS = [DOCS / "example-study", *KEPT]
DOCUMENT = studies.DOCUMENT.read_text()
STATISTICS = (DOCS / "statistics.md").read_text()
README = (DOCS.parent / "README.md").read_text()
PROSE = " ".join(studies.SHOWN.sub("", DOCUMENT).split())


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_the_texts_of_a_study_follow_from_its_plan_and_rows(folder):
    for name, text in studies.texts(folder).items():
        for path in (folder / f"{name}.md", folder / "tables" / f"{name}.md"):
            assert not path.exists() or path.read_text() == text, path
    page = (folder / "index.html").read_text()
    assert studies.with_answers(page, folder) == page
    assert folder == FOLDERS[0] or (folder / "answers.md").exists()


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_the_answers_agree_with_pandas_and_scipy(folder):
    """Means over seeds and ordinary p-values, from the rows alone."""
    study = yaml.safe_load((folder / "plan.yaml").read_text())["study"]
    runs = pd.read_csv(folder / "runs.csv").query("stage == 'testing'")
    metric = study.get("metric", "accuracy")
    chance = 100 / runs["classes"].max() if metric == "accuracy" else 8.0
    outcomes = {metric: runs[f"test_{metric}"], "beyond": _beyond(runs, metric)}
    tables = {
        name: runs.assign(value=values.where(~runs["diverged"], chance)).pivot(
            index="seed", columns="arm", values="value"
        )
        for name, values in outcomes.items()
    }
    texts = studies.texts(folder)
    answers = (texts["answers"] + texts["further"]).splitlines()
    families = list(dict.fromkeys(h["family"] for h in study["hypotheses"]))
    hypotheses = sorted(study["hypotheses"], key=lambda h: families.index(h["family"]))
    assert len(answers) == len(hypotheses)
    for h, answer in zip(hypotheses, answers, strict=True):
        table = tables[h.get("outcome", "accuracy")]
        sides = [[s] if isinstance(s, str) else s for s in (h["arm"], h["than"], *h["minus"])]
        means = [table[side].mean(axis=1) for side in sides]
        difference = means[0] - means[1]
        if h["minus"]:
            difference = difference - (means[2] - means[3])
        n = int(answer.partition(" seeds")[0].split()[-1])
        difference = difference.dropna()[:n]
        assert len(difference) == n
        is_refuted = answer.endswith('Refuted: "' + h["text"] + '"')
        # A tie may be rounded either way.
        unit = r"(?:points|bits per byte) \("
        (shown,) = re.findall(rf"(?: by |: )([+-]?[0-9.]+) {unit}", answer)
        last = 10.0 ** -len(shown.partition(".")[2])
        mean = abs(difference.mean()) if is_refuted else difference.mean()
        assert abs(float(shown) - mean) < last / 2 + 1e-9
        p = stats.ttest_1samp(difference, 0).pvalue
        if h["expects"] != "equivalent" and (is_refuted or answer.startswith("- Supported")):
            assert p <= study["testing"]["alpha"]
            wanted = {"greater": 1, "less": -1}[h["expects"]]
            assert (np.sign(difference.mean()) == wanted) != is_refuted
        if is_refuted:
            above = difference.mean() > 0
            better = above == (metric == "accuracy")
            words = ("above", "below") if h["minus"] else ("ahead of", "behind")
            word = words[0 if (above if h["minus"] else better) else 1]
            assert f" is {word} " in answer
        every = means[0] - means[1] - (means[2] - means[3] if h["minus"] else 0)
        _check_all_seeds(answer, np.sign(every.mean()) ** is_refuted * every.dropna(), n)


def _check_all_seeds(answer, every, decided):
    """A hypothesis that was decided early has its ordinary estimate over all seeds."""
    is_early = len(every) > decided and not answer.startswith("- Undecided")
    number = r"([+-]?[0-9.]+)"
    found = re.findall(rf"All (\d+) seeds: {number} \(95 % interval {number} to {number}\)", answer)
    assert len(found) == is_early
    if is_early:
        n, *shown = found[0]
        low, high = stats.ttest_1samp(every, 0).confidence_interval()
        last = 10.0 ** -len(shown[0].partition(".")[2])
        assert int(n) == len(every)
        assert np.abs(np.array(shown, float) - [every.mean(), low, high]).max() < last / 2 + 1e-9


def _beyond(runs, metric):
    """The mean of the results above max_len where each length is twice the one before."""
    longer = {
        int(name.rpartition("_")[2]): runs[name]
        for name in runs
        if re.fullmatch(rf"test_{metric}_at_\d+", name)
    }
    lengths = sorted(n for n in longer if n > runs["max_len"].max())
    if not lengths:
        return runs[f"test_{metric}"] * np.nan
    assert all(long == 2 * short for short, long in itertools.pairwise(lengths))
    values = [longer[n] for n in lengths]
    weights = [0.5, *[1.0] * (len(lengths) - 2), 0.5] if len(lengths) > 1 else [1.0]
    return sum(w * v for w, v in zip(weights, values, strict=True)) / sum(weights)


@pytest.mark.parametrize("folder", KEPT, ids=lambda folder: folder.name)
def test_the_share_that_a_curve_explains_is_that_of_least_squares(folder):
    runs = pd.read_csv(folder / "runs.csv").query("stage == 'testing' and norm_ratio > 0")
    if runs.empty:
        return
    study = yaml.safe_load((folder / "plan.yaml").read_text())["study"]
    arms = study["arms"]
    operator = runs["arm"].map(lambda arm: arms[arm].get("fusion", "add"))
    x, y = np.log(runs["norm_ratio"]), runs[f"test_{study.get('metric', 'accuracy')}"]

    def rest(own):
        powers = np.vander((x[own] - x[own].mean()) / x[own].std(), 5)
        return np.linalg.lstsq(powers, y[own], rcond=1e-15)[1].sum()

    every = ((y - y.mean()) ** 2).sum()
    by_operator = sum(rest(operator == name) for name in operator.unique())
    shares = [f"{100 * (1 - left / every):.0f} %" for left in (rest(y == y), by_operator)]
    text = (folder / "curve.md").read_text()
    assert re.findall(r"explains (\d+ %)", text) == shares
    assert f"over {len(runs)} test runs" in text


@pytest.mark.parametrize("folder", PLANS, ids=lambda folder: folder.name)
def test_plans_that_are_run_are_those_of_conf(folder):
    """A plan that was kept has the study that conf/study defines today."""
    kept = yaml.safe_load((folder / "plan.yaml").read_text())["study"]
    own = yaml.safe_load((CONF_DIR / "study" / f"{folder.name}.yaml").read_text())
    assert kept["question"] == own["question"]
    assert kept["arms"] == own["arms"]
    assert kept["settings"] == own.get("settings", {})
    assert kept["hypotheses"] == [{**old, **new} for old, new in zip(
        kept["hypotheses"], own["hypotheses"], strict=True)]  # fmt: skip


def test_the_texts_on_the_page_are_the_committed_ones():
    assert studies.with_texts(DOCUMENT) == DOCUMENT
    assert {found["study"] for found in studies.SHOWN.finditer(DOCUMENT)} == {
        *(folder.name for folder in KEPT),
        *grids.GRIDS,
        *(folder for folder, _ in finding_tables.TABLES),
    }


def test_every_number_in_the_prose_is_in_a_text_of_a_study():
    """A number with a decimal point or a sign is a result."""
    found = " ".join(path.read_text() for path in sorted(studies.FOLDER.glob("*/*.md")))
    first_screen = README.partition("**Results so far")[2].partition("## ")[0]
    for prose in (PROSE, " ".join(first_screen.split())):
        quoted = re.findall(
            r"(?<![\w.`=])[+-]?\d+\.\d+(?![\d.])|(?<![\w.`=])[+-]\d+(?![\d.])", prose
        )
        assert quoted
        for number in quoted:
            assert re.search(rf"(?<![\d.]){re.escape(number)}(?![\d.])", found), number
        estimates = _estimates(prose)
        assert len(estimates) >= 5
        assert estimates <= _estimates(found)


def _estimates(text):
    """Each mean with its interval, with the sign that makes the mean positive."""
    number = r"([+-]?\d+\.\d+)"
    shown = re.findall(
        rf"{number}[a-z ]{{0,30}}(?: \(|, )(?:95 % interval )?{number} to {number}", text
    )
    values = (map(float, estimate) for estimate in shown)
    return {(-m, -high, -low) if m < 0 else (m, low, high) for m, low, high in values}


@pytest.mark.parametrize("place", finding_tables.TABLES, ids="/".join)
def test_further_tables_follow_from_the_rows(place):
    text = (studies.FOLDER / place[0] / f"{place[1]}.md").read_text()
    assert text == finding_tables.TABLES[place]()
    assert text in DOCUMENT


@pytest.mark.parametrize(
    ("tuning", "pages"), [("own_best", ["findings", "README"]), ("operator_or_scale", ["findings"])]
)
def test_the_noise_of_tuning_is_that_of_the_simulation(tuning, pages):
    """With 24 seeds, from half of the estimated spread of trials to the whole."""
    rows = [line.split(" | ") for line in STATISTICS.splitlines() if f"| {tuning} | " in line]
    whole, half, _ = (100 * float(row[6].split()[0]) for row in rows)
    for page in pages:
        prose = {"findings": PROSE, "README": " ".join(README.split())}[page]
        assert f"in {half:.0f} to {whole:.0f} of 100 simulated studies" in prose


def test_a_difference_at_20_symbols_is_that_of_the_rows():
    runs = pd.read_csv(studies.FOLDER / "extrapolation/runs.csv").query("stage == 'testing'")
    at = runs.pivot(index="seed", columns="arm", values="test_accuracy_at_20")
    both = (at["tupe_duplicate"] - at["add_duplicate"] + at["tupe_index"] - at["add_index"]) / 2
    low, high = stats.ttest_1samp(both, 0).confidence_interval()
    (row,) = (r for r in finding_tables.by_length().splitlines() if "both | tupe" in r)
    assert row.split(" | ")[3] == f"{both.mean():+.1f} ({low:+.1f} to {high:+.1f})"


def test_the_mean_without_alibi_is_that_of_three_encodings():
    runs = pd.read_csv(studies.FOLDER / "encodings/runs.csv").query("stage == 'testing'")
    means = runs.groupby("arm")["test_accuracy"].mean()
    three = sum(means[f"add_{e}"] - means[f"none_{e}"] for e in ("rope", "relative", "t5")) / 3
    assert f"| mean without alibi | 63.87 | {three:+.1f} (" in finding_tables.by_encoding()


def test_answers_without_order_are_counted_over_ties():
    """By hand: b is most frequent; a and b tie; c does not occur; no letter at all."""
    labels = np.array([1, 0, 2, 3])
    assert without_order.answered(["bab", "ab", "aab", ""], labels, "abcd") == 1 + 1 / 2 + 0 + 1 / 4


def test_a_bag_of_words_can_be_computed_for_a_committed_plan(monkeypatch):
    runs = without_order.configs("text_bbc", "add", [])
    seed, cfg = next(runs)  # their folder exists as long as `runs`
    assert (seed, cfg.data.name) == (cfg.seed, "bbc_lead_paragraph")
    monkeypatch.setattr(without_order, "configs", lambda *_: [(seed, cfg)])
    monkeypatch.setattr(bag_of_words, "_fit", lambda cfg: bag_of_words.BagOfWords(80.0, 9))
    (row,) = without_order.bags("text_bbc", []).to_dict("records")
    assert row == {"seed": seed, "test_documents": 9, "bag_of_words": 80.0}


def test_repeated_strings_are_counted_by_length():
    """Strings of 6 symbols are few, so all splits draw from the same ones; longer ones are many."""
    corpus = {
        "_target_": "posfuse.data.tasks.indirect_index", "symbols": 4, "farthest": 4,
        "split_seed": 0, "lengths": [6, 7], "test_lengths": [12], "sizes": [4000, 140, 140],
    }  # fmt: skip
    rows = pd.DataFrame(without_order.counted("indirect_index", DataConfig(corpus=corpus)))
    assert list(rows["length"]) == [*range(6, 8), 12]
    assert rows["strings"].sum() == 280
    assert list(rows["in_training"] > 0) == [True, False, False]
    long = rows[rows["length"] == 12]
    assert 0.15 < long["most_frequent"].sum() / long["strings"].sum() < 0.35
    assert 0.4 < long["near_mark"].sum() / long["strings"].sum() < 0.6


@pytest.mark.parametrize(
    ("sweep", "data", "column", "factor"),
    [
        ("positions", "missing_duplicate", "lengths.40.accuracy", 100),
        ("language_model_grid", "bbc_bytes", "lengths.128.bits_per_byte", 1),
    ],
)
def test_the_table_of_a_grid_follows_from_its_runs(sweep, data, column, factor):
    runs = pd.read_csv(studies.FOLDER / sweep / grids.RUNS)
    text = (studies.FOLDER / sweep / grids.TEXT).read_text()
    assert text == grids.table(runs, grids.GRIDS[sweep])
    assert text in DOCUMENT
    (row,) = (line for line in text.splitlines() if f"{data} | rope |" in line)
    shown = row.split("|")[3].split(" / ")[1]  # addition at the first of data.test_lengths
    own = runs[(runs["data"] == data) & (runs["encoding"] == "rope") & (runs["fusion"] == "add")]
    digits = len(shown.partition(".")[2])
    expected = factor * own[column].sum() / 3
    assert float(shown) == pytest.approx(expected, abs=0.51 * 10**-digits)


def test_rows_of_a_commit_that_does_not_exist_are_refused(tmp_path):
    report = tmp_path / "mine" / "report"
    report.mkdir(parents=True)
    (report / "runs.csv").write_text(f"arm,commit\nadd,{'0' * 40}\nconcat,\n")
    with pytest.raises(
        SystemExit, match=r"error: .*mine: no commit 0{40} here; run it at a commit"
    ):
        studies.keep(tmp_path / "mine")
    assert not (studies.FOLDER / "mine").exists()
