"""Contrasts and what is decided about them: by hand, and against functions of one pair."""

import math

import numpy as np
import pandas as pd
import pytest

from posfuse.evidence.metric import ACCURACY, BITS_PER_BYTE
from posfuse.statistics.contrasts import ANSWERS, answer, decide, differences
from posfuse.study.looks import deltas
from posfuse.study.spec import Hypothesis
from posfuse.verdicts.sentences import Size, to_settle

OUTCOMES = pd.DataFrame(
    {"a": [3.0, 5.0, 9.0], "b": [1.0, 1.0, np.nan], "c": [2.0, 4.0, 6.0]}, index=[0, 1, 7]
)


def test_a_contrast_is_a_weighted_sum_over_the_seeds_that_every_arm_has():
    found = differences({"a": 1, "b": -0.5, "c": -0.5}, OUTCOMES)
    assert found.to_dict() == {0: 1.5, 1: 2.5}
    assert differences({"a": 1, "c": -1}, OUTCOMES).to_dict() == {0: 1, 1: 1, 7: 3}
    assert differences({"a": 1, "nobody": -1}, OUTCOMES).empty


def test_the_weights_sum_to_0():
    with pytest.raises(AssertionError):
        differences({"a": 1, "b": -0.5}, OUTCOMES)


def test_a_hypothesis_is_a_contrast_up_to_the_first_seed_that_an_arm_lacks():
    h = Hypothesis("h", "t", ["a", "c"], "b", [], "greater", 2.0, "main")
    assert h.weights == {"a": 0.5, "c": 0.5, "b": -1.0}
    assert deltas(h, OUTCOMES, [0, 1, 7, 8]) == [1.5, 3.5]
    assert deltas(h, OUTCOMES, [8, 0]) == []


def test_a_shown_difference_comes_before_equivalence():
    mean, differs, same = [1, -1, -1, 1], [True, True, False, False], [True, False, True, False]
    assert decide(mean, differs, same).tolist() == ["ahead", "behind", "equivalent", "undecided"]
    assert [answer(*case) for case in ((True, True), (False, True), (False, False))] == [
        "supported", "refuted", "undecided"
    ]  # fmt: skip
    assert ANSWERS["less"]["behind"] == ANSWERS["equivalent"]["equivalent"] == "supported"


def test_a_size_names_who_is_ahead_whatever_is_better():
    values = "a", "b", -2.0, -3.0, -1.0
    assert Size(*values, ACCURACY, 1).difference == "a - b: -2.0 points (-3.0 to -1.0)"
    assert Size(*values, ACCURACY, 1).relation == "a is behind b by 2.0 points (1.0 to 3.0)"
    assert Size(*values, BITS_PER_BYTE, 1).relation.startswith("a is ahead of b by 2.0 bits per")
    second = Size(*values, ACCURACY, 0, where=" here", are_differences=True)
    assert second.relation == "a is below b here by 2 points (1 to 3)"
    alone = Size("a", "b", 1.0, math.nan, math.nan, ACCURACY, 1)
    assert alone.difference == "a - b: +1.0 points"


def test_what_would_settle_an_undecided_difference():
    assert to_settle(math.nan, math.nan) == ""
    assert to_settle(math.inf, math.inf) == "No feasible number of seeds would settle this."
    assert to_settle(1234.0, 61.4) == (
        "About 1,200 seeds would settle this if the true difference is as measured, and about 61 "
        "if it is 0."
    )
