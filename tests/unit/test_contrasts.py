"""Contrasts and what is decided about them: by hand, and against functions of one pair."""

import math

import numpy as np
import pandas as pd
import pytest

from posfuse.statistics.contrasts import ANSWERS, decide, differences
from posfuse.study.looks import deltas
from posfuse.study.spec import Hypothesis
from posfuse.verdicts.sentences import to_settle

OUTCOMES = pd.DataFrame(
    {"a": [3.0, 5.0, 9.0], "b": [1.0, 1.0, np.nan], "c": [2.0, 4.0, 6.0]}, index=[0, 1, 7]
)


def test_a_contrast_is_a_weighted_sum_over_the_seeds_that_every_arm_has():
    found = differences({"a": 1, "b": -0.5, "c": -0.5}, OUTCOMES)
    assert found.to_dict() == {0: 1.5, 1: 2.5}
    assert differences({"a": 1, "c": -1}, OUTCOMES).to_dict() == {0: 1, 1: 1, 7: 3}
    assert differences({"a": 1, "nobody": -1}, OUTCOMES).empty


def test_a_difference_by_rounding_is_none():
    """0.1 + 0.2 is not 0.3. The next difference is small, but no rounding."""
    outcomes = pd.DataFrame({"a": [0.1 + 0.2, 0.3 + 1e-8, 1e12], "b": [0.3, 0.3, 0.0]})
    found = differences({"a": 1, "b": -1}, outcomes)
    assert found.tolist() == [0.0, pytest.approx(1e-8), 1e12]  # whatever other seeds have


def test_the_weights_sum_to_0():
    with pytest.raises(AssertionError):
        differences({"a": 1, "b": -0.5}, OUTCOMES)


def test_a_hypothesis_is_a_contrast_up_to_the_first_seed_that_an_arm_lacks():
    h = Hypothesis("h", "t", ["a", "c"], "b", "greater", [], 2.0, "main")
    assert h.weights == {"a": 0.5, "c": 0.5, "b": -1.0}
    assert deltas(h, OUTCOMES, [0, 1, 7, 8]) == [1.5, 3.5]
    assert deltas(h, OUTCOMES, [8, 0]) == []


def test_a_shown_difference_comes_before_equivalence():
    mean, differs, same = [1, -1, -1, 1], [True, True, False, False], [True, False, True, False]
    assert decide(mean, differs, same).tolist() == ["ahead", "behind", "equivalent", "undecided"]
    assert ANSWERS["less"]["behind"] == ANSWERS["equivalent"]["equivalent"] == "supported"


def test_differences_without_a_spread_say_nothing_about_more_seeds():
    assert to_settle(math.nan, math.nan) == ""
