"""Trials for tuning.method=tpe: Optuna proposes the trials of each arm, one after another.

The sampler has a fixed seed, and a trial depends on the results of earlier trials. So the same
records give the same trials, and a stopped search repeats no run.
"""

from collections.abc import Callable
from typing import Any

from posfuse.errors import InputError
from posfuse.study.spec import AGAIN, Study, Trials, rounded

# The trials of this round by arm -> the score of each arm; None to end the search here.
Score = Callable[[Trials], dict[str, float] | None]


def trials(study: Study, score: Score) -> Trials:
    """The trials of each arm up to the first one without a score. Raises InputError without
    Optuna."""
    try:
        import optuna  # an optional dependency, which takes a second to import
    except ImportError as error:
        raise InputError(
            "tuning.method: tpe needs Optuna; run pip install 'posfuse[optuna]', or use random"
        ) from error
    assert study.tuning is not None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    ranges = {
        key: optuna.distributions.FloatDistribution(r.least, r.most, log=True)
        for key, r in study.tuning.random.items()
    }
    direction = "minimize" if study.measured.lower_is_better else "maximize"
    searches = {
        arm: optuna.create_study(
            direction=direction, sampler=optuna.samplers.TPESampler(seed=study.tuning.draw)
        )
        for arm in study.arms
    }
    tried: Trials = {arm: {} for arm in study.arms}
    for number in range(study.tuning.trials):
        asked: dict[str, Any] = {}
        newest: Trials = {}
        for arm, search in searches.items():
            for _ in range(AGAIN):  # two trials with the same rounded values would be one run
                asked[arm] = search.ask(ranges)
                values = {key: rounded(asked[arm].params[key]) for key in ranges}
                if values not in tried[arm].values():
                    break
            else:
                raise InputError(f"arms.{arm}: no other values in tuning.random; widen a range")
            newest[arm] = {f"t{number:02}": values}
            tried[arm] |= newest[arm]
        scores = score(newest)
        if scores is None:
            break
        for arm, search in searches.items():
            search.tell(asked[arm], scores[arm])
    return tried
