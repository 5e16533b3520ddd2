"""Trials that Optuna proposes, for the tuning of a study and for a sweep.

The sampler has a fixed seed, and a trial depends on the scores of earlier trials. So the same
scores give the same trials, and a stopped search repeats no run.
"""

import math
from types import ModuleType
from typing import Any

from posfuse.errors import InputError

AGAIN = 100  # largest number of draws of a trial whose values equal an earlier trial's


def round_value(value: Any) -> Any:
    """A drawn value, rounded as in trials."""
    return float(f"{value:.4g}") if isinstance(value, float) else value


def optuna_for(what: str) -> ModuleType:
    """The module optuna, an optional dependency that takes a second to import. Raises InputError
    without it. `what` is the feature that needs it."""
    try:
        import optuna
    except ImportError as error:
        raise InputError(f"{what} needs Optuna; run pip install 'posfuse[optuna]'") from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    module: ModuleType = optuna
    return module


class Proposals:
    """The trials of one search. No two have the same values, because they would be the same run."""

    def __init__(
        self, optuna: ModuleType, distributions: dict[str, Any], direction: str, seed: int
    ) -> None:
        """`distributions` are Optuna's distributions by key. `direction` is minimize or
        maximize."""
        self.fail, self.distributions = optuna.trial.TrialState.FAIL, distributions
        sampler = optuna.samplers.TPESampler(seed=seed)
        self.study = optuna.create_study(direction=direction, sampler=sampler)
        self.tried: list[dict[str, Any]] = []
        self.waiting: list[Any] = []  # Optuna's trials without a score

    def ask(self) -> dict[str, Any] | None:
        """The values of the next trial by key; None if Optuna proposes no new values."""
        for _ in range(AGAIN):
            trial = self.study.ask(self.distributions)
            values = {key: round_value(trial.params[key]) for key in self.distributions}
            if values not in self.tried:
                self.tried.append(values)
                self.waiting.append(trial)
                return values
        return None

    def tell(self, score: float) -> None:
        """Set the score of the first trial without one; NaN if it failed."""
        result = {"state": self.fail} if math.isnan(score) else {"values": score}
        self.study.tell(self.waiting.pop(0), **result)
