"""The studies in docs: every verdict, table and number follows from the committed plan and rows."""

import itertools
import re

import numpy as np
import pandas as pd
import pytest
import yaml
from scipy import stats

import grids
import studies
from posfuse.config import CONF_DIR

DOCS = CONF_DIR.parent / "docs"
PLANS = [path.parent for path in sorted(DOCS.glob("findings/*/plan.yaml"))]
KEPT = [folder for folder in PLANS if (folder / "runs.csv").exists()]  # the others are not finished
FOLDERS = [DOCS / "example-study", *KEPT]
DOCUMENT = studies.DOCUMENT.read_text()
PROSE = " ".join(studies.SHOWN.sub("", DOCUMENT).split())


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_the_texts_of_a_study_follow_from_its_plan_and_rows(folder):
    for name, text in studies.texts(folder).items():
        for path in (folder / f"{name}.md", folder / "tables" / f"{name}.md"):
            assert not path.exists() or path.read_text() == text, path
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
        # A tie may be rounded either way.
        (shown,) = re.findall(r": ([+-][0-9.]+) (?:points|bits per byte) \(", answer)
        last = 10.0 ** -len(shown.partition(".")[2])
        assert abs(float(shown) - difference.mean()) < last / 2 + 1e-9
        p = stats.ttest_1samp(difference, 0).pvalue
        if answer.startswith(("- Supported", "- Refuted")) and h["expects"] != "equivalent":
            assert p <= study["testing"]["alpha"]
            wanted = {"greater": 1, "less": -1}[h["expects"]]
            ahead = np.sign(difference.mean()) == wanted
            assert ahead == answer.startswith("- Supported")


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
    assert kept["settings"] == own["settings"]
    assert kept["hypotheses"] == [{**old, **new} for old, new in zip(
        kept["hypotheses"], own["hypotheses"], strict=True)]  # fmt: skip


def test_the_texts_on_the_page_are_the_committed_ones():
    assert studies.with_texts(DOCUMENT) == DOCUMENT
    assert {found["study"] for found in studies.SHOWN.finditer(DOCUMENT)} == {
        *(folder.name for folder in KEPT),
        *grids.GRIDS,
    }


def test_every_number_in_the_prose_is_in_a_text_of_a_study():
    """A number with a decimal point or a sign is a result."""
    found = " ".join(text for folder in KEPT for text in studies.texts(folder).values())
    found += " ".join((studies.FOLDER / name / grids.TEXT).read_text() for name in grids.GRIDS)
    quoted = re.findall(r"(?<![\w.`=])[+-]?\d+\.\d+(?![\d.])|(?<![\w.`=])[+-]\d+(?![\d.])", PROSE)
    for number in quoted:
        assert re.search(rf"(?<![\d.]){re.escape(number)}(?![\d.])", found), number


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
