"""Trials for tuning.method=tpe: Optuna proposes the trials of each arm, one after another."""

from collections.abc import Callable

from posfuse.errors import InputError
from posfuse.runs.proposals import Proposals, optuna_for
from posfuse.study.spec import Study, Trials

# The trials of this round by arm -> the score of each arm; None to end the search here.
Score = Callable[[Trials], dict[str, float] | None]


def trials(study: Study, score: Score) -> Trials:
    """The trials of each arm up to the first one without a score. Raises InputError without
    Optuna."""
    assert study.tuning is not None
    optuna = optuna_for("tuning.method: tpe")
    ranges = {
        key: optuna.distributions.FloatDistribution(r.least, r.most, log=True)
        for key, r in study.tuning.random.items()
    }
    direction = "minimize" if study.measured.lower_is_better else "maximize"
    searches = {arm: Proposals(optuna, ranges, direction, study.tuning.draw) for arm in study.arms}
    tried: Trials = {arm: {} for arm in study.arms}
    for number in range(study.tuning.trials):
        newest: Trials = {}
        for arm, search in searches.items():
            if (values := search.ask()) is None:
                raise InputError(f"arms.{arm}: no other values in tuning.random; widen a range")
            newest[arm] = {f"t{number:02}": values}
            tried[arm] |= newest[arm]
        if (scores := score(newest)) is None:
            break
        for arm, search in searches.items():
            search.tell(scores[arm])
    return tried
