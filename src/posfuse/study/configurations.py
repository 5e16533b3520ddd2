"""The composed configs of a study's arms. They are checked before anything runs, and are part of
the plan."""

import math
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException

from posfuse.config import CONF_DIR, Config
from posfuse.errors import HubUnreachable, InputError
from posfuse.process import signals
from posfuse.runs.checks import checked, task_of
from posfuse.runs.composing import Composer
from posfuse.runs.coverage import training_lengths
from posfuse.runs.folders import run_folder
from posfuse.runs.hydra_errors import one_line
from posfuse.runs.identity import differing, fingerprint_of, settings
from posfuse.study.arm_sweep import ArmSweep
from posfuse.study.spec import Study, Values

NEARLY_ALL = 0.9  # of the training documents
# The settings of a corpus and of its tokens. A corpus may have several names.
OF_CORPUS = (
    "data.path", "data.corpus", "data.text", "data.labels", "data.splits", "data.vocabulary.unit",
    "data.vocabulary.file", "host.path",
)  # fmt: skip


class Composed(NamedTuple):
    """A composed config, with its `settings` and its fingerprint."""

    config: Config
    settings: Values
    fingerprint: str


def compose(study: Study, arms: Mapping[str, Values], extra: list[str]) -> dict[str, Composed]:
    """The composed config of each arm (or of each arm and trial, by their overrides), with seed 0.

    `extra` are the user's overrides; data.path among them counts by its texts. Raises InputError,
    which names the arm, if its config is refused, or if its config or its folder is another arm's.
    """
    found: dict[str, Composed] = {}
    first: dict[str, str] = {}  # the first arm with a fingerprint, or with a folder of runs
    with (
        tempfile.TemporaryDirectory() as place,
        initialize_config_dir(str(CONF_DIR), version_base="1.3"),
    ):
        sweep = ArmSweep(study, "check", "test", arms, {})
        common = [*sweep.write_experiment(Path(place), arms, [0], extra), "seed=0"]
        composer = Composer(GlobalHydra.instance().config_loader())
        for arm, own in sweep.arms.items():
            try:
                config = checked(composer.without_hydra("train", [*common, *own]))
                _check_outcomes(study, arm, config)
                _check_seeds(config)
                flat = settings(config)
            except RecursionError as error:
                raise InputError(f"base: {study.base} includes itself; remove base") from error
            except (HydraException, OmegaConfBaseException, ValueError, InputError) as error:
                line = one_line(error)
                of_settings = line.partition("experiment/check_test.yaml: ")[2]
                place = f"settings: {of_settings}" if of_settings else f"arms.{arm}: {line}"
                raise InputError(place) from error
            fingerprint = fingerprint_of(flat)
            if (other := first.setdefault(fingerprint, arm)) != arm:
                raise InputError(f"arms.{arm}: has the same config as arms.{other}; remove one")
            names = config.data.name, config.encoding.name, config.fusion["name"]
            if (other := first.setdefault(run_folder(*names, 0, own), arm)) != arm:
                key = differing(flat, found[other].settings)[0]
                raise InputError(
                    f"arms.{arm}: its runs would have the same folder as those of arms.{other}, "
                    f"because the folder's name leaves out {key}; set another data.name, "
                    "encoding.name or fusion.name in one of them"
                )
            found[arm] = Composed(config, flat, fingerprint)
    return found


def _check_outcomes(study: Study, arm: str, cfg: Config) -> None:
    """Raise InputError unless the arm's records have the outcomes of the study's hypotheses."""
    data, known = cfg.data, task_of(cfg).metrics
    if study.metric not in known:
        raise InputError(
            f"metric: {data.name} with task={cfg.task.name} has no {study.metric}; use "
            f"{' or '.join(known)}"
        )
    if arm in study.tested_beyond and max(data.test_lengths, default=0) <= data.max_len:
        raise InputError(
            f"data.test_lengths: needs a length above data.max_len={data.max_len} for a hypothesis "
            f"with outcome: beyond (got {data.test_lengths})"
        )


def _check_seeds(cfg: Config) -> None:
    """Raise InputError if a source of randomness has a fixed seed. Runs with different seeds would
    share it, and no interval would contain its noise."""
    for source, seed in vars(cfg.seeds).items():
        if seed is not None:
            raise InputError(
                f"seeds.{source}: must be null in a study, so that it differs between seeds (got "
                f"{seed})"
            )


def check_documents(study: Study, arms: Mapping[str, Composed], say: Callable[[str], None]) -> None:
    """Raise InputError for an arm whose data.max_len is above the length of nearly all training
    documents, if arms of its corpus differ in data.max_len. If the hub cannot be reached, `say`
    gets a line instead. The token store of the first test seed is read.
    """
    corpora: dict[str, dict[str, int]] = {}  # data.max_len of each arm
    for arm, (config, own, _) in arms.items():
        if not task_of(config).causal:  # a language model reads windows
            corpus = {key: value for key, value in own.items() if key.startswith(OF_CORPUS)}
            corpora.setdefault(str(corpus), {})[arm] = config.data.max_len
    for lengths in corpora.values():
        if len(set(lengths.values())) == 1:
            continue
        config = arms[next(iter(lengths))].config
        try:
            tokens = training_lengths(replace(config, seed=study.test_seeds[0]), signals.check)
        except HubUnreachable as error:
            say(f"{config.data.name}: the lengths of its documents are not checked ({error})")
            continue
        fit = tokens[math.ceil(NEARLY_ALL * len(tokens)) - 1]
        for arm, length in lengths.items():
            if length > fit:
                name = arms[arm].config.data.name
                raise InputError(
                    f"arms.{arm}: data.max_len={length}, but {100 * (tokens < length).mean():.0f} "
                    f"% of the training documents of {name} have fewer tokens (median "
                    f"{np.median(tokens):g}), so this length changes almost nothing; use lengths "
                    f"up to {fit}, or longer documents"
                )
