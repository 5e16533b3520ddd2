"""A small study, the file of a study, and hand-written runs as `finished_runs` gives them."""

from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import yaml

from posfuse.study.plan import Choice, Plan
from posfuse.study.spec import Assumed, Evaluation, Hypothesis, Study

GOOD = {
    "question": "Does concat gain?",
    "base": "quickstart",
    "settings": {"data": "bbc_lead_paragraph", "trainer.max_epochs": 1},
    "arms": {
        "add": {"fusion": "add"},
        "concat": {"fusion": "concat"},
        "add_none": {"fusion": "add", "encoding": "none"},
        "concat_none": {"fusion": "concat", "encoding": "none"},
    },
    "tuning": {"grid": {"optim.lr": [0.001, 0.003], "model.token_scale": [1, 4]}, "seeds": [100]},
    "testing": {"seeds": "0-7", "looks": [4, 8]},
    "hypotheses": [
        {"name": "gain", "text": "t", "arm": "concat", "than": "add", "expects": "greater"},
        {
            "name": "position", "text": "t", "arm": "concat", "than": "add",
            "minus": ["concat_none", "add_none"], "expects": "greater", "margin": 2,
        },
    ],
    "assumed": {"difference": 3, "spread": 2},
}  # fmt: skip


def small_study(*more: str, **changes) -> Study:
    """A study of addition, concatenation and more operators with two looks at up to 8 seeds."""
    study = Study(
        question="q",
        arms={arm: {"fusion": arm} for arm in ("add", "concat", *more)},
        testing=Evaluation(seeds="0-7", looks=[4, 8]),
        hypotheses=[Hypothesis("gain", "t", "concat", "add", expects="greater")],
        assumed=Assumed(3.0, 2.0),
    )
    return replace(study, **changes)


def write_study(path: Path, content: dict, **changes) -> str:
    """Write a study with some values replaced; keys are paths such as testing__looks, and None
    removes a key at the top."""
    content = deepcopy(content)
    for key, value in changes.items():
        *parents, last = (int(k) if k.isdecimal() else k for k in key.split("__"))
        node = content
        for parent in parents:
            node = node[parent]
        node[last] = value
    given = {key: value for key, value in content.items() if value is not None}
    path.write_text(yaml.safe_dump(given, sort_keys=False))
    return str(path)


def plan_of(study: Study, **choices: Choice) -> Plan:
    """The plan of a study with these choices, by default without tuning."""
    return Plan(study, choices or {arm: Choice({}) for arm in study.arms}, {}, "d")


def study_runs(metric: str = "accuracy", best: int = 1, **results) -> pd.DataFrame:
    """The test runs of each arm, with two evaluations, of which `best` is the best one.

    `results` has the results of each arm in the unit of the metric: a list over seeds, or a dict by
    seed. None is a run that diverged.
    """
    run = {"stage": "testing", "arm": "", "trial": "", "seed": 0, "diverged": False}
    measured = {"best_evaluation": best, "evaluations": 2, "classes": 5}
    measured |= {f"test_{metric}": 0.0, "test_documents": np.nan, "norm_ratio": np.nan}
    rows = []
    for arm, values in results.items():
        by_seed = values if isinstance(values, dict) else dict(enumerate(values))
        for seed, value in by_seed.items():
            own = {"diverged": True} if value is None else measured | {f"test_{metric}": value}
            rows.append(run | {"arm": arm, "seed": seed} | own)
    return pd.DataFrame(rows, columns=[*run, *measured]).astype({"diverged": bool})
