"""Shares of runs and of seeds: by hand, against statsmodels, and by enumeration."""

import numpy as np
import pytest
from statsmodels.stats.proportion import proportion_confint

from posfuse.statistics.shares import outperforming, outperforms


def test_outperforming_by_hand():
    p, low, high = outperforming([1.0, 2.0, -1.0, 0.5])
    assert p == 0.75
    assert (low, high) == pytest.approx(proportion_confint(3, 4, method="beta"))
    # All of n wins: the lower end solves p^n = 0.025.
    assert outperforming([1.0] * 6) == pytest.approx((1, 0.025 ** (1 / 6), 1))
    assert outperforming([1.0] * 5)[1] < 0.5 < outperforming([1.0] * 6)[1]


def test_a_tie_counts_half_and_widens_the_interval():
    p, low, high = outperforming([1.0, 0.0, -1.0, 1e-12, 2.0])
    assert p == pytest.approx((2 + 2 / 2) / 5)
    assert low == pytest.approx(proportion_confint(2, 5, method="beta")[0])
    assert high == pytest.approx(proportion_confint(4, 5, method="beta")[1])
    assert outperforming([0.0, 0.0])[0] == 0.5
    assert np.isnan(outperforming([])).all()


def test_bouthilliers_criterion():
    for low, high, found in (
        (0.51, 0.9, "yes"),
        (0.51, 0.74, "little"),
        (0.5, 1.0, "open"),
        (0.1, 0.49, "loses"),
        (0.26, 0.49, "little"),
        (np.nan, np.nan, "open"),
    ):
        assert outperforms(low, high) == found, (low, high)
