"""The sweeps of a study: ordinary multirun sweeps whose arms a generated experiment file defines.

Tuning runs go to multirun/NAME_tune and test runs to multirun/NAME_test; the study's own files lie
in multirun/NAME.
"""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import yaml
from omegaconf import OmegaConf

from posfuse.config import CONF_DIR, is_neutral
from posfuse.errors import InputError
from posfuse.process import signals
from posfuse.runs import records
from posfuse.runs.multirun import MULTIRUN, folder_of, read_multirun
from posfuse.study.spec import Study, Values

OUTPUT = Path("multirun")
PLAIN = re.compile(r"[A-Za-z0-9_./+-]+")


class Sweep:
    """One stage of a study as a sweep of arms and seeds."""

    def __init__(self, study: Study, name: str, stage: str, arms: Mapping[str, Values]) -> None:
        """`arms` are the overrides of each arm; for tuning, of each arm and trial."""
        self.study, self.name, self.id = study, name, f"{name}_{stage}"
        self.folder = OUTPUT / self.id
        self.arms = {arm: overrides(values) for arm, values in arms.items()}

    def run(self, arms: Iterable[str], seeds: Iterable[int], extra: list[str]) -> None:
        """Train these arms with these seeds; finished runs are skipped.

        `extra` are the user's overrides, such as a launcher. Raises Interrupted after a signal, and
        SystemExit with the command's status if a run failed for another reason than divergence.
        """
        experiments = OUTPUT / self.name / "conf" / "experiment"
        experiments.mkdir(parents=True, exist_ok=True)
        (experiments / f"{self.id}.yaml").write_text(
            self._experiment(arms, seeds), encoding="utf-8"
        )
        place = str(experiments.parent.resolve()).replace("\\", "\\\\").replace("'", "\\'")
        search = f"hydra.searchpath=['file://{place}']"
        command = [sys.executable, "-m", "posfuse.train", "-m", search, f"experiment={self.id}"]
        signals.check()
        # In a group of its own, so that Ctrl-C reaches it once: from here.
        with_parent = partial(signals.exit_with_parent, os.getpid())
        child = subprocess.Popen([*command, *extra], process_group=0, preexec_fn=with_parent)
        code = _ended(child)
        signals.check()
        if code == signals.EXIT_STATUS:
            raise signals.Interrupted("interrupted")
        failed = [f for _, f in records.failures_in(self.folder) if f["kind"] != "diverged"]
        if code and (failed or code != 1 or not any(records.failures_in(self.folder))):
            sys.exit(code)

    def _experiment(self, arms: Iterable[str], seeds: Iterable[int]) -> str:
        """The content of the experiment file, as a user would write it."""
        settings, groups = OmegaConf.create(), []
        for key, value in self.study.settings.items():
            if is_group(key):
                groups.append({f"override /{key}": value})
            else:
                OmegaConf.update(settings, key, value)
        base = [f"/{self.study.base}"] if self.study.base else []
        params = {"arm": ",".join(arms), "seed": ",".join(map(str, seeds))}
        content = {
            "defaults": [*base, *groups, "_self_"],
            "sweep_id": self.id,
            "output_dir": str(OUTPUT),
            **OmegaConf.to_container(settings),  # type: ignore[dict-item]
            "hydra": {"mode": "MULTIRUN", "sweeper": {"params": params, "arms": self.arms}},
        }
        return "# @package _global_\n" + yaml.safe_dump(content, sort_keys=False, width=10_000)

    def results(self, arms: Iterable[str], seeds: Iterable[int]) -> dict[tuple[str, int], Any]:
        """The records of the finished runs by arm and seed; None for a run that diverged."""
        if not (self.folder / MULTIRUN).exists():
            return {}
        found: dict[tuple[str, int], Any] = {}
        cfg, _ = read_multirun(self.folder / MULTIRUN)
        for arm in arms:
            for seed in seeds:
                folder = self.folder / folder_of([*self.arms[arm], f"seed={seed}"], cfg)
                if (folder / records.RESULT).exists():
                    found[arm, seed] = records.read_result(folder / records.RESULT)
                elif any(f["kind"] == "diverged" for _, f in records.failures_in(folder)):
                    found[arm, seed] = None
        return found

    def has_started(self) -> bool:
        """Whether any run of the sweep has written a file."""
        return any(self.folder.rglob("config.yaml"))


def _ended(child: "subprocess.Popen[bytes]") -> int:
    """Wait for the command; a signal that this process receives is passed on to it once."""
    passed = False
    while True:
        try:
            return child.wait(timeout=0.2)
        except subprocess.TimeoutExpired:
            name = signals.received()
            if name and not passed:
                passed = True
                child.send_signal(signal.Signals[name])


def is_group(key: str) -> bool:
    """Whether an override with this key chooses a file of conf/."""
    return (CONF_DIR / key).is_dir()


def overrides(values: Values) -> list[str]:
    """Hydra's overrides for these keys and values."""
    return [f"{key}={_text(value)}" for key, value in values.items()]


def _text(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return f"[{','.join(map(_text, value))}]"
    if isinstance(value, str) and not PLAIN.fullmatch(value):
        escaped = value.replace("\\", "\\\\").replace("'", "\\'")
        return f"'{escaped}'"
    return str(value)


def check_extra(extra: list[str]) -> None:
    """Refuse overrides on the command line that would change a number of the study's runs."""
    for override in extra:
        key = override.lstrip("+~").partition("=")[0]
        is_launcher = key == "hydra/launcher" or key.startswith("hydra.launcher.")
        if not (is_launcher or is_neutral(key)) or key in ("sweep_id", "output_dir"):
            raise InputError(f"{override}: would change the study; put {key} into its file instead")
