"""The studies in docs: every verdict and table follows from the committed plan and rows."""

import numpy as np
import pandas as pd
import pytest
import yaml
from scipy import stats

import studies
from posfuse.config import CONF_DIR

DOCS = CONF_DIR.parent / "docs"
PLANS = [path.parent for path in sorted(DOCS.glob("findings/*/plan.yaml"))]
KEPT = [folder for folder in PLANS if (folder / "runs.csv").exists()]  # the others are not tested
FOLDERS = [DOCS / "example-study", *KEPT]


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
    chance = 100 / runs["classes"].max()
    accuracy = runs["test_accuracy"].where(~runs["diverged"], chance)
    table = runs.assign(accuracy=accuracy).pivot(index="seed", columns="arm", values="accuracy")
    answers = studies.texts(folder)["answers"].splitlines()
    assert len(answers) == len(study["hypotheses"])
    for h, answer in zip(study["hypotheses"], answers, strict=True):
        sides = [[s] if isinstance(s, str) else s for s in (h["arm"], h["than"], *h["minus"])]
        means = [table[side].mean(axis=1) for side in sides]
        difference = means[0] - means[1]
        if h["minus"]:
            difference = difference - (means[2] - means[3])
        n = int(answer.partition(" seeds")[0].split()[-1])
        difference = difference.dropna()[:n]
        assert len(difference) == n
        assert f": {difference.mean():+.1f} points (" in answer.replace("-0.0", "+0.0")
        p = stats.ttest_1samp(difference, 0).pvalue
        if answer.startswith(("- Supported", "- Refuted")) and h["expects"] != "equivalent":
            assert p <= study["testing"]["alpha"]
            wanted = {"greater": 1, "less": -1}[h["expects"]]
            ahead = np.sign(difference.mean()) == wanted
            assert ahead == answer.startswith("- Supported")


def test_plans_that_are_run_are_those_of_conf():
    """A plan that was kept has the study that conf/study defines today."""
    for folder in PLANS:
        kept = yaml.safe_load((folder / "plan.yaml").read_text())["study"]
        own = yaml.safe_load((CONF_DIR / "study" / f"{folder.name}.yaml").read_text())
        assert kept["question"] == own["question"]
        assert list(kept["arms"]) == list(own["arms"])
        assert kept["hypotheses"] == [{**old, **new} for old, new in zip(
            kept["hypotheses"], own["hypotheses"], strict=True)]  # fmt: skip
