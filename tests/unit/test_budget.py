"""The expected best of k trials: by hand, against enumeration, and in the report's table."""

from itertools import combinations

import numpy as np
import pandas as pd
import pytest

from posfuse.evidence.metric import ACCURACY
from posfuse.report.sections.own_values import budget, budget_table
from posfuse.statistics.budget import budgets, expected_best


@pytest.mark.parametrize("scores", [[3], [4, 1, 2], [0.5, 0.9, 0.7, 0.7, 0.2]])
def test_the_formula_is_the_mean_over_all_draws(scores):
    draws = [combinations(scores, k) for k in range(1, len(scores) + 1)]
    mean_of_best = [np.mean([max(draw) for draw in of_k]) for of_k in draws]
    assert expected_best(scores) == pytest.approx(mean_of_best)


def test_many_trials_stay_in_range():
    scores = np.random.default_rng(0).random(300)
    found = expected_best(scores)
    assert found[[0, -1]] == pytest.approx([scores.mean(), scores.max()])
    assert (np.diff(found) > -1e-12).all()


def cells(**validation):
    """The cells of each operator, from its mean validation accuracies."""
    frame = pd.Series(validation, name="validation").rename_axis("fusion").explode()
    return frame.astype(float).reset_index().assign(data="tiny", encoding="sin", variant="")


def test_operators_with_too_few_trials_have_no_curve():
    frame = budgets(cells(add=[50, 70, 60, 80], mul=[1, 2], mlp=[1, 2, np.nan, 3]))
    assert frame[["fusion", "trials"]].to_numpy().tolist() == [["add", 4], ["mlp", 3]]
    assert frame["expected"][0] == pytest.approx(expected_best([50, 60, 70, 80]))
    table = budget_table(frame, ACCURACY, "")
    assert table.columns == ["data", "encoding", "fusion", "1", "2", "3", "4"]
    assert table.rows == [
        ["tiny", "sin", "add", "65.00", "73.33", "77.50", "80.00"],
        ["tiny", "sin", "mlp", "2.00", "2.67", "3.00", ""],
    ]
    many = pd.DataFrame([{"arm": "a", "expected": list(range(33))}])
    assert budget_table(many, ACCURACY, "").columns == ["arm", "1", "2", "4", "8", "16", "32", "33"]
    assert all(table.numeric[3:])
    names = ["data", "encoding", "variant", "fusion", "validation"]
    assert budgets(pd.DataFrame(columns=names)).empty
    assert budgets(cells(add=[1, 2])).empty


def test_the_figure_has_a_line_for_each_operator():
    figure = budget(budgets(cells(add=[50, 70, 60, 80], mlp=[1, 2, 3])))
    lines = {len(line.get_xdata()): list(line.get_ydata()) for line in figure.axes[0].lines}
    assert lines[4] == pytest.approx(expected_best([50, 60, 70, 80]))
    assert lines[3] == pytest.approx(expected_best([1, 2, 3]))
