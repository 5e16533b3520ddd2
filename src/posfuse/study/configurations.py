"""The composed configs of a study's arms: checked before anything runs, and part of the plan."""

import tempfile
from collections.abc import Iterable
from pathlib import Path

from hydra import compose, initialize_config_dir
from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException

from posfuse.analysis.evidence.metric import ACCURACY, BITS_PER_BYTE, EXACT_MATCH, GREEDY_ACCURACY
from posfuse.config import CONF_DIR, Config, DataConfig, models_language
from posfuse.errors import InputError
from posfuse.runs.checks import checked
from posfuse.runs.hydra_errors import one_line
from posfuse.runs.records import fingerprint
from posfuse.study.sweeps import Sweep


def _check_lengths(data: DataConfig) -> None:
    if not data.test_lengths or max(data.test_lengths) <= data.max_len:
        raise InputError(
            f"data.test_lengths: needs a length above data.max_len={data.max_len} for a hypothesis "
            f"with outcome: beyond (got {data.test_lengths})"
        )


def _check_metric(name: str, cfg: Config) -> None:
    """The study's metric must be one that the arm's records have."""
    known = [ACCURACY.name]
    if models_language(cfg):
        answers = [EXACT_MATCH.name, GREEDY_ACCURACY.name]
        known += [BITS_PER_BYTE.name] if cfg.data.vocabulary.unit == "bytes" else answers
    if name not in known:
        raise InputError(
            f"metric: {cfg.data.name} with task={cfg.task.name} has no {name}; use "
            f"{' or '.join(known)}"
        )


def fingerprints(sweep: Sweep, arms: Iterable[str], extra: list[str]) -> dict[str, str]:
    """The fingerprint of each arm's composed config, with seed 0 in all of them.

    `extra` are the user's overrides; data.path among them counts by its texts.
    Raises InputError, which names the arm, if its config is refused or is that of another arm.
    """
    found: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        others = sweep.write_experiment(Path(folder), arms, [0], extra)
        common = [sweep.search_path(Path(folder)), f"experiment={sweep.id}", "seed=0", *others]
        for arm in arms:
            try:
                with initialize_config_dir(str(CONF_DIR), version_base="1.3"):
                    config = checked(compose("train", [*common, *sweep.arms[arm]]))
                _check_metric(sweep.study.metric, config)
                if arm in sweep.study.tested_beyond:
                    _check_lengths(config.data)
                own = fingerprint(config)
            except (HydraException, OmegaConfBaseException, ValueError, InputError) as error:
                raise InputError(f"arms.{arm}: {one_line(error)}") from error
            for other, theirs in found.items():
                if own == theirs:
                    raise InputError(f"arms.{arm}: has the same config as arms.{other}; remove one")
            found[arm] = own
    return found
