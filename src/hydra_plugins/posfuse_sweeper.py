"""Hydra's sweeper with checks of what is swept; Hydra finds plugins in this package only."""

from collections.abc import Sequence
from typing import Any

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, ValueType
from omegaconf import read_write

from posfuse.errors import InputError
from posfuse.process import signals
from posfuse.runs.multirun import with_arm
from posfuse.sweeps.failures import FAIL_FAST

ONE = {"output_dir": "folder", "sweep_id": "folder", "experiment": "experiment"}


class PosfuseSweeper(BasicSweeper):
    """Refuses a sweep without runs or over folders, and ends it for sweep.fail_fast.

    `arms` names lists of overrides: the sweep `arm=a,b` runs those of a and those of b, each with
    all values of the other keys. So arms can differ in several keys that are not crossed.
    """

    def __init__(
        self,
        max_batch_size: int | None,
        params: dict[str, str] | None = None,
        arms: dict[str, list[str]] | None = None,
    ) -> None:
        super().__init__(max_batch_size, params)
        self.arms = arms or {}

    def split_arguments(  # type: ignore[override]  # Hydra's is a static method
        self, overrides: list[Override], max_batch_size: int | None
    ) -> list[list[list[str]]]:
        """The overrides of each run, in batches."""
        batches = super().split_arguments(overrides, max_batch_size)
        return [[with_arm(run, self.arms) for run in batch] for batch in batches]

    def sweep(self, arguments: list[str]) -> Any:
        """Run every job, or with sweep.fail_fast up to the first failure.

        Raises InputError for a sweep over folders, over experiments, over an interval or over no
        values.
        """
        assert self.config is not None
        assert self.hydra_context is not None
        parser = OverridesParser.create(self.hydra_context.config_loader)
        given = [*(f"{key}={value}" for key, value in self.params.items()), *arguments]
        listed = [_listed(override) for override in parser.parse_overrides(given)]
        # multirun.yaml gets the names that a glob has found: posfuse-status and the report read it
        # without the config groups.
        self.params = {}
        with read_write(self.config.hydra):
            self.config.hydra.sweeper.params = None
            self.config.hydra.overrides.task = listed
        # Before multirun.yaml is written: a refused command must not replace that of a good sweep.
        self.seen: set[str] = set()
        for batch in self.split_arguments(parser.parse_overrides(listed), None):
            self.validate_batch_is_legal(batch)
        try:
            return super().sweep(listed)
        except signals.Interrupted:
            if signals.received() != FAIL_FAST:
                raise
            return []

    def validate_batch_is_legal(self, batch: Sequence[Sequence[str]]) -> None:
        """Compose one job for each override: Hydra would compose every job, 0.15 s each."""
        for overrides in batch:
            if not self.seen.issuperset(overrides):
                super().validate_batch_is_legal([overrides])
                self.seen.update(overrides)


def _listed(override: Override) -> str:
    """The override as given, with the names that a glob has found in its place."""
    line = str(override.input_line)
    if not override.is_sweep_override():
        return line
    key = override.key_or_group
    if key in ONE:
        raise InputError(f"{key}: a sweep has one {ONE[key]}; run one command for each")
    if not override.is_discrete_sweep():
        raise InputError(f"{line}: an interval has no list of values; use range() or choice()")
    if getattr(override.value(), "step", None) == 0:
        raise InputError(f"{line}: the step must not be 0; give another step")
    values = list(override.sweep_string_iterator())
    if not values:
        raise InputError(f"{line}: no values, so no runs; give at least one")
    is_glob = override.value_type == ValueType.GLOB_CHOICE_SWEEP
    return f"{override.get_key_element()}={','.join(values)}" if is_glob else line
