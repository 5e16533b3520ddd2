"""Hydra's own sweeper, without the seconds that it takes for what is done; in this package since
Hydra looks for plugins nowhere else."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.overrides_parser import OverridesParser

from posfuse import request
from posfuse.errors import InputError
from posfuse.preemption import Preempted
from posfuse.watch import watching

log = logging.getLogger(__name__)


class SkippingSweeper(BasicSweeper):
    """Leaves out of a sweep the runs that are seen to be done before their configs are composed,
    and says what fails when it does."""

    def sweep(self, arguments: list[str]) -> Any:
        """The sweep, to its end, or with sweep.fail_fast to the first failure."""
        assert self.config is not None
        for override in OverridesParser.create().parse_overrides(arguments):
            if not override.is_sweep_override():
                continue
            if override.key_or_group in ("output_dir", "sweep_id"):
                raise InputError(
                    f"{override.key_or_group}: a sweep lies in one folder; give a command for each"
                )
            if not any(True for _ in override.sweep_string_iterator()):
                raise InputError(f"{override.input_line}: asks for no run; give it a value")
        folder = Path(self.config.hydra.sweep.dir)
        watch = None
        try:
            with watching(folder, self.config.sweep.fail_fast) as watch:
                return super().sweep(arguments)
        except Preempted:
            if watch is None or not watch.has_ended_sweep:
                raise
            return []

    def get_job_batch(self) -> Sequence[Sequence[str]]:
        """The next jobs' overrides."""
        assert self.config is not None
        finished = request.finished(Path(self.config.hydra.sweep.dir))
        basis = request.basis(self.config.hydra.runtime.config_sources)
        left = []
        for overrides in super().get_job_batch():
            record = finished.get(request.digest(basis, overrides) or "")
            if record is None:
                left.append(overrides)
            else:
                cell = "{data} {encoding} {fusion} seed={seed}".format_map(record)
                log.info("%s: done already, test accuracy %.4f", cell, record["test"]["accuracy"])
        return left

    def validate_batch_is_legal(self, batch: Sequence[Sequence[str]]) -> None:
        """Compose a job for each override, where Hydra composes every job."""
        seen: set[str] = set()
        for overrides in batch:
            if not seen.issuperset(overrides):
                super().validate_batch_is_legal([overrides])
                seen.update(overrides)
