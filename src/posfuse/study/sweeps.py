"""The sweeps of a study: ordinary multirun sweeps whose arms a generated experiment file defines.

Tuning runs go to multirun/NAME_tune and test runs to multirun/NAME_test; the study's own files lie
in multirun/NAME.
"""

import os
import re
import subprocess
import sys
from collections.abc import Collection, Iterable, Mapping
from functools import partial
from itertools import product
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
SET_BY_STUDY = ("seed", "experiment", "arm")
PATH = "data.path="
PLAIN = re.compile(r"[A-Za-z0-9_./+-]+")


class Sweep:
    """One stage of a study as a sweep of arms and seeds."""

    def __init__(self, study: Study, name: str, stage: str, arms: Mapping[str, Values]) -> None:
        """`arms` are the overrides of each arm; for tuning, of each arm and trial."""
        self.study, self.name, self.id = study, name, f"{name}_{stage}"
        self.folder = OUTPUT / self.id
        self.arms = {arm: overrides(values) for arm, values in arms.items()}

    def run(self, arms: Collection[str], seeds: Collection[int], extra: list[str]) -> None:
        """Train these arms with these seeds; finished runs are skipped.

        `extra` are the user's overrides, such as a launcher. Raises Interrupted after a signal, and
        SystemExit with the command's status if a run has no result and did not diverge.
        """
        conf = OUTPUT / self.name / "conf"
        extra = self.write_experiment(conf, arms, seeds, extra)
        start = [sys.executable, "-m", "posfuse.train", "-m"]
        command = [*start, self.search_path(conf), f"experiment={self.id}"]
        signals.check()
        # In a group of its own, so that Ctrl-C reaches it once: from here.
        with_parent = partial(signals.exit_with_parent, os.getpid())
        child = subprocess.Popen([*command, *extra], process_group=0, preexec_fn=with_parent)
        code = _ended(child)
        signals.check()
        if code == signals.EXIT_STATUS:
            raise signals.Interrupted("interrupted")
        asked = set(product(arms, seeds))
        found = self.results(arms, seeds)
        if code and asked - set(found):
            sys.exit(code)
        if diverged := sum(record is None for record in found.values()):
            print(f"{diverged} of {len(asked)} runs diverged; the study continues", flush=True)

    def write_experiment(
        self, conf: Path, arms: Iterable[str], seeds: Iterable[int], extra: list[str]
    ) -> list[str]:
        """Write the experiment file of these runs into conf/experiment, as a user would.

        A data.path of the user becomes a part of it, since it would be a part of the runs' folders
        otherwise. Returns the user's other overrides.
        """
        settings, groups = OmegaConf.create(), []
        others = [override for override in extra if not override.startswith(PATH)]
        for override in (o for o in extra if o.startswith(PATH)):
            OmegaConf.update(settings, PATH[:-1], override.removeprefix(PATH).strip("'\""))
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
        text = "# @package _global_\n" + yaml.safe_dump(content, sort_keys=False, width=10_000)
        (conf / "experiment").mkdir(parents=True, exist_ok=True)
        (conf / "experiment" / f"{self.id}.yaml").write_text(text, encoding="utf-8")
        return others

    @staticmethod
    def search_path(conf: Path) -> str:
        """The override that lets Hydra find the files in this folder."""
        place = str(conf.resolve()).replace("\\", "\\\\").replace("'", "\\'")
        return f"hydra.searchpath=['file://{place}']"

    def results(self, arms: Iterable[str], seeds: Iterable[int]) -> dict[tuple[str, int], Any]:
        """The records of the finished runs by arm and seed; None for a run that diverged.

        Raises InputError if the runs of one arm differ in more than the seed.
        """
        found: dict[tuple[str, int], Any] = {}
        first: dict[str, dict[str, Any]] = {}  # the settings of each arm
        for (arm, seed), folder in self.folders(arms, seeds).items():
            if (folder / records.RESULT).exists():
                record = found[arm, seed] = records.read_result(folder / records.RESULT)
                own = {k: v for k, v in record["settings"].items() if k != "seed"}
                before = first.setdefault(arm, own)
                if changed := [k for k in own if own[k] != before.get(k)]:
                    raise InputError(
                        f"{folder}: other settings than the arm's first run ({changed[0]} "
                        f"{before.get(changed[0])} -> {own[changed[0]]}); restore conf/ and remove "
                        "this run, or give the study a new name and fresh seeds"
                    )
            elif any(f["kind"] == "diverged" for _, f in records.failures_in(folder)):
                found[arm, seed] = None
        return found

    def folders(self, arms: Iterable[str], seeds: Iterable[int]) -> dict[tuple[str, int], Path]:
        """The folder of each run by arm and seed; none before the sweep has started."""
        if not (self.folder / MULTIRUN).exists():
            return {}
        cfg, _ = read_multirun(self.folder / MULTIRUN)
        return {
            (arm, seed): self.folder / folder_of([*self.arms[arm], f"seed={seed}"], cfg)
            for arm, seed in product(arms, seeds)
        }

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
            if signals.received() and not passed:
                passed = True
                child.terminate()  # SIGINT would print a traceback while modules load


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
    """Refuse overrides on the command line that would change a number of the study's runs.

    data.path is allowed: a folder's name differs between machines, and the plan holds a digest of
    its texts.
    """
    for override in extra:
        key = override.lstrip("+~").partition("=")[0]
        is_launcher = key == "hydra/launcher" or key.startswith("hydra.launcher.")
        if override.startswith("-"):
            raise InputError(f"{override}: unknown option; posfuse-study --help shows all")
        allowed = is_launcher or is_neutral(key) or override.startswith(PATH)
        if not allowed or key in ("sweep_id", "output_dir", *SET_BY_STUDY):
            raise InputError(f"{override}: would change the study; put {key} into its file instead")
