"""The sweeps of a study: ordinary sweeps with a generated experiment file that defines the arms.

Tuning runs are in multirun/NAME_tune, test runs in multirun/NAME_test, and the study's own files in
multirun/NAME.
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

from hydra.core.override_parser.types import Quote, QuotedString
from omegaconf import OmegaConf

from posfuse.config import CONF_DIR
from posfuse.errors import AlreadyRunning, Diverged, InputError
from posfuse.process import signals
from posfuse.runs import identity, records
from posfuse.runs.folders import folders_of
from posfuse.runs.multirun import conflict_of, read_multirun
from posfuse.study.given import PATH
from posfuse.study.plan import Plan, refusal
from posfuse.study.spec import Study, Values

OUTPUT = Path("multirun")
MISSING = "no result"
REMOVE = "remove it to run again"
COPY = "copy the study's file to a new name"
PLAIN = re.compile(r"[A-Za-z0-9_./+-]+")  # a text that needs no quotes
NO_TEXT = re.compile(r"(?i)null|true|false|[+-]?(inf|nan|[\d._]*\d[\d._]*(e[+-]?\d+)?)")


class RunsFailed(InputError):
    """Runs of a sweep have no result."""


class ArmSweep:
    """One stage of a study as a sweep of arms and seeds."""

    def __init__(
        self, study: Study, name: str, stage: str, arms: Mapping[str, Values],
        configs: Mapping[str, str], plan: Plan | None = None,
    ) -> None:  # fmt: skip
        """`arms` are the overrides of each arm; for tuning, of each arm and trial. `configs` are
        the fingerprints of their configs with seed 0. `plan` is the plan of test runs."""
        self.study, self.name, self.stage, self.id = study, name, stage, f"{name}_{stage}"
        self.folder = OUTPUT / self.id
        self.values, self.arms = arms, {arm: overrides(own) for arm, own in arms.items()}
        self.configs, self.plan = configs, plan

    @property
    def seeds(self) -> list[int]:
        """All seeds of the stage."""
        study = self.study
        return study.test_seeds if self.plan else study.tuning_seeds + study.final_seeds

    def run(self, arms: Collection[str], seeds: Collection[int], extra: list[str]) -> None:
        """Train these arms with these seeds, except finished runs. `extra` are the user's
        overrides, such as a launcher. Raises Interrupted after a signal, and RunsFailed if a run
        has no result and did not diverge."""
        given = self.write_experiment(OUTPUT / self.name / "conf", arms, seeds, extra)
        signals.check()
        # In a separate process group, so that Ctrl-C reaches it only once, from this process.
        with_parent = partial(signals.exit_with_parent, os.getpid())
        command = [sys.executable, "-m", "posfuse", "train", "-m", *given]
        child = subprocess.Popen(command, process_group=0, preexec_fn=with_parent)
        code = _wait(child)
        signals.check()
        if code == signals.EXIT_STATUS:
            raise signals.Interrupted("interrupted")
        asked, results = list(product(arms, seeds)), self.results(arms, seeds)
        if missing := [key for key in asked if key not in results]:
            arm, seed = missing[0]
            reason = self.reasons([arm], [seed]).get((arm, seed), "see above")
            fix = "fix this and run the same command"
            if self.plan and arm in self.plan.code:
                fix += f"; if your own code must change, {COPY}"
            raise RunsFailed(
                f"{self.folder}: {len(missing)} of {len(asked)} runs have no result, such as {arm} "
                f"seed={seed} ({reason}); {fix}"
            )
        if diverged := sum(record is None for record in results.values()):
            print(f"{diverged} of {len(asked)} runs diverged; the study continues", flush=True)

    def write_experiment(
        self, conf: Path, arms: Iterable[str], seeds: Iterable[int], extra: list[str]
    ) -> list[str]:
        """Write the experiment file of these runs into conf/experiment, as a user would.

        A data.path of the user goes into the file, because an arm may have its own, and a sweep
        refuses two overrides of one key. Returns the overrides of the sweep: the file and the
        user's other overrides.
        """
        settings, groups = OmegaConf.create(), []
        others = [override for override in extra if not override.startswith(PATH)]
        for key, value in self.study.settings.items():
            if is_group(key, self.study.searchpath):
                groups.append({f"override /{key}": value})
            else:
                OmegaConf.update(settings, key, value)
        for override in (o for o in extra if o.startswith(PATH)):  # after the study's own path
            OmegaConf.update(settings, PATH[:-1], override.removeprefix(PATH).strip("'\""))
        OmegaConf.update(settings, "logger.job_type", self.stage)
        if self.plan:
            OmegaConf.update(settings, "sweep.plan", self.plan.digest)
        base = [f"/{self.study.base}"] if self.study.base else []
        params = {"arm": ",".join(arms), "seed": ",".join(map(str, seeds))}
        content = {
            "defaults": [*base, *groups, "_self_"],
            "sweep_id": self.id,
            "output_dir": str(OUTPUT),
            **OmegaConf.to_container(settings),  # type: ignore[dict-item]
            "hydra": {
                "sweeper": {"params": params, "arms": self.arms},
                "callbacks": {"ending": {"is_of_study": True}},
            },
        }
        text = "# @package _global_\n" + OmegaConf.to_yaml(OmegaConf.create(content))
        (conf / "experiment").mkdir(parents=True, exist_ok=True)
        (conf / "experiment" / f"{self.id}.yaml").write_text(text, encoding="utf-8")
        searched = [f"file://{conf.resolve()}", *self.study.searchpath]
        return [f"hydra.searchpath={_text(searched)}", f"experiment={self.id}", *others]

    def results(self, arms: Iterable[str], seeds: Collection[int]) -> dict[tuple[str, int], Any]:
        """The records of the finished runs by arm and seed; None for a run that diverged. A record
        of another run is left out; `reasons` has the reason."""
        read = self._read_runs(arms, seeds).items()
        return {key: record for key, (record, reason) in read if not reason}

    def reasons(self, arms: Iterable[str], seeds: Collection[int]) -> dict[tuple[str, int], str]:
        """The reasons why started runs have no result, by arm and seed."""
        read = self._read_runs(arms, seeds).items()
        return {key: reason for key, (_, reason) in read if reason not in ("", MISSING)}

    def _read_runs(
        self, arms: Iterable[str], seeds: Collection[int]
    ) -> dict[tuple[str, int], tuple[records.Record | None, str]]:
        """The record of each run, and the reason if the run has no result, otherwise "". An arm has
        one code: that of the plan, otherwise that of its first result over all seeds of the
        stage."""
        of_plan = self.plan.code if self.plan else {}
        codes = dict(of_plan)
        read = {}
        folders = self.folders(arms, dict.fromkeys([*self.seeds, *seeds]))
        for (arm, seed), folder in folders.items():
            record, reason, code = self._read(arm, seed, folder)
            if code is not None and codes.setdefault(arm, code) != code:
                path = folder / (records.RESULT if record else records.FAILURE)
                fix = f"restore the code and remove it, or {COPY}"
                other = "the plan" if arm in of_plan else "earlier seeds"
                reason = f"{path}: has other code than {other}; {fix}"
            read[arm, seed] = record, reason
        return {key: found for key, found in read.items() if key[1] in seeds}

    def _read(
        self, arm: str, seed: int, folder: Path
    ) -> tuple[records.Record | None, str, str | None]:
        """The record of a run; the reason if the run has no result, otherwise ""; the digest of the
        user's own code of a run with a result."""
        path, record, conflict = folder / records.RESULT, None, ""
        try:
            if path.exists():
                identity_of = record = records.read_result(path)
                conflict = conflict_of(folder)
            elif (failure := records.read_failure(folder)) is None or (
                # The process that ran it may have ended; an interrupted run resumes.
                failure["kind"] in (AlreadyRunning.kind, records.INTERRUPTED)
            ):
                return None, MISSING, None
            elif failure["kind"] != Diverged.kind or not failure.get("run"):
                return None, failure["message"], None
            else:
                path, identity_of = folder / records.FAILURE, failure["run"]
        except InputError as error:
            return None, str(error), None
        refused = refusal(identity_of, seed, self.configs[arm], self.plan)
        score = f"test.{self.study.metric}"
        if record and not isinstance(identity.flatten(record).get(score), int | float):
            refused = refused or f"has no number {score}"
        if refused:
            return record, f"{path}: {refused}; {REMOVE}", None
        if conflict:
            fix = f"restore the code, {REMOVE}, or {COPY}"
            return record, f"{path}: the last command had other code or settings; {fix}", None
        return record, "", identity_of.get("code")

    def folders(self, arms: Iterable[str], seeds: Iterable[int]) -> dict[tuple[str, int], Path]:
        """The folder of each run by arm and seed; none before the sweep has started."""
        if (cfg := read_multirun(self.folder).config) is None:
            return {}
        keys = list(product(arms, seeds))
        jobs = [[*self.arms[arm], f"seed={seed}"] for arm, seed in keys]
        folders = (self.folder / folder for folder in folders_of(jobs, cfg))
        return dict(zip(keys, folders, strict=True))


def _wait(child: "subprocess.Popen[bytes]") -> int:
    """Wait for the command. Pass a signal that this process receives on to it once."""
    passed = False
    while True:
        try:
            return child.wait(timeout=0.2)
        except subprocess.TimeoutExpired:
            if signals.interruption() and not passed:
                passed = True
                child.terminate()  # SIGINT would print a traceback while modules load


def is_group(key: str, searchpath: Iterable[str]) -> bool:
    """True if an override with this key chooses a file of conf/ or of these folders."""
    return any((Path(folder) / key).is_dir() for folder in (str(CONF_DIR), *searchpath))


def overrides(values: Values) -> list[str]:
    """Hydra's overrides for these keys and values."""
    return [f"{key}={_text(value)}" for key, value in values.items()]


def _text(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return f"{{{','.join(f'{key}:{_text(own)}' for key, own in value.items())}}}"
    if isinstance(value, list):
        return f"[{','.join(map(_text, value))}]"
    if isinstance(value, str) and (not PLAIN.fullmatch(value) or NO_TEXT.fullmatch(value)):
        return QuotedString(value, Quote.single).with_quotes()
    return str(value)
