"""Collects records in one tidy table with one row per run. Unusable records are left out and
listed."""

from collections import Counter
from pathlib import Path

import pandas as pd
import yaml
from pandas.api.types import is_float_dtype

from posfuse.errors import AlreadyRunning, InputError
from posfuse.evidence.metric import Metric
from posfuse.evidence.rows import row_of
from posfuse.limits import NAME
from posfuse.runs.configs import CONFIG
from posfuse.runs.folders import AXES, results_in, variant_of, without_runs
from posfuse.runs.measurements import CLASSES
from posfuse.runs.multirun import has_result, read_multirun, sweep_around
from posfuse.runs.records import RESULT, Record, failures_in
from posfuse.runs.usable import usable
from posfuse.untrusted import LARGEST_YAML, read_bytes, read_yaml

CELL = ["data", "encoding", "fusion", "variant"]
GROUP = [axis for axis in CELL if axis != "fusion"]  # equal for compared operators
CUT_NAME = r".*-[0-9a-f]{8}"  # of a folder, from `variant_of`
NO_FAMILY = b"\n  primary: []\n"  # in a config.yaml
# Overrides that set a default; a run with them is not a variant.
DEFAULTS = ("model.token_scale=sqrt_d", "seeds=together")


def collect(folder: str | Path) -> tuple[pd.DataFrame, list[str]]:
    """All runs below `folder`, and a line for each record that is left out.

    It leaves out what `usable` leaves out, and records with a metric that is not a number.

    Columns: the record's keys, nested ones joined with dots ("test.accuracy"), `folder`, and
    `length`, the mean number of tokens of the training documents, cut at data.max_len, over the
    runs of one sweep, corpus and variant. Runs with data.test_lengths have "lengths.80.accuracy"
    and so on, NaN in others. Rows are sorted by the corpus's mean length, data, encoding, fusion,
    variant, seed. Raises InputError if there is no run.
    """
    root = Path(folder)
    if not root.is_dir():
        raise InputError(
            f"{root}: no such folder; give the folder of a sweep, such as multirun/quickstart"
        )
    rows, problems = usable(root, row_of)
    if not rows:
        raise InputError(problems[-1] if problems else without_runs(root))
    runs = pd.DataFrame(rows)
    runs["variant"] = _readable(runs)
    runs["variant"] = _without_defaults(runs)
    tokens = runs["mean_tokens.train"]
    same = [runs[name] for name in ("sweep_id", "data", "variant")]
    runs = runs.assign(
        length=tokens.groupby(same).transform("mean"),
        of_corpus=tokens.groupby(runs["data"]).transform("mean"),
    )
    runs = runs.sort_values(["of_corpus", *CELL, "seed", "folder"]).reset_index(drop=True)
    return runs.drop(columns="of_corpus"), problems


def _readable(runs: pd.DataFrame) -> "pd.Series[str]":
    """The variants. The settings that vary replace a name that was cut to fit a folder's name. All
    names of a sweep stay if this would give a variant two names, or two variants one name."""
    names = runs["variant"].copy()
    for _, sweep in runs.groupby("sweep_id", sort=False):
        columns = settings_columns(sweep, "fusion.")
        labels = varying(sweep, ["data", "encoding"], columns).str.replace(" ", "__")
        is_cut = sweep["variant"].str.fullmatch(CUT_NAME) & (labels != "")
        new = sweep["variant"].where(~is_cut, labels)
        pairs = sweep[["data", "encoding", "variant"]].assign(new=new).drop_duplicates()
        has_two_names, is_shared = (
            pairs.duplicated(["data", "encoding", name]).any() for name in ("variant", "new")
        )
        if not (has_two_names or is_shared):
            names.update(new)
    return names


def _without_defaults(runs: pd.DataFrame) -> "pd.Series[str]":
    """The variants without DEFAULTS. A sweep keeps them if two of its cells with different settings
    would become one: its experiment sets another value than the default."""
    parts = runs["variant"].str.split("__")
    short = parts.map(lambda own: "__".join(part for part in own if part not in DEFAULTS))
    cells = runs.groupby([runs[axis] for axis in ("sweep_id", *CELL[:-1])] + [short])
    kinds = cells[["variant", "configuration"]].transform("nunique")
    is_mixed = (kinds > 1).all(axis=1).groupby(runs["sweep_id"]).transform("any")
    return short.where(~is_mixed, runs["variant"])


def naming_columns(runs: pd.DataFrame) -> list[str]:
    """The columns of CELL that name a cell of these runs. A variant of all runs is left out."""
    return CELL[:-1] if runs["variant"].nunique() == 1 else CELL


def predicting(
    rows: pd.DataFrame, runs: pd.DataFrame | None = None, kind: str = CLASSES
) -> pd.DataFrame:
    """The rows with the data, encoding and variant of runs whose predictions are of this kind.
    `runs` are all runs; None: the rows are runs."""
    known = rows if runs is None else runs
    others = known[known["task.predictions"] != kind]
    theirs = pd.MultiIndex.from_frame(others[GROUP])
    return rows[~pd.MultiIndex.from_frame(rows[GROUP]).isin(theirs)]


def settings_columns(runs: pd.DataFrame, *without: str) -> list[str]:
    """The columns of the config's settings, except the seed and keys that start with `without`."""
    skipped = tuple(f"settings.{name}" for name in without)
    names = [c for c in map(str, runs) if c.startswith("settings.") and c != "settings.seed"]
    return [c for c in names if not c.startswith(skipped)]


def differing(one: pd.Series, other: pd.Series) -> str:
    """Up to three settings in which two runs differ, as "key a, b; ..."; empty if none."""
    keys = [k for k in one.index if str(one[k]) != str(other[k])]
    return "; ".join(f"{k.removeprefix('settings.')} {one[k]}, {other[k]}" for k in keys[:3])


def varying(runs: pd.DataFrame, within: list[str], columns: list[str]) -> "pd.Series[str]":
    """For each run "key=value" of the columns that vary among the runs with equal `within`, without
    keys that its record lacks."""
    labels = pd.Series("", runs.index)
    texts = runs[columns].apply(_texts)
    for _, group in texts.groupby([runs[name] for name in within], sort=False):
        varied = [c for c in columns if group[c].nunique() > 1]
        for i, row in zip(group.index, group[varied].to_numpy(), strict=True):
            pairs = zip(varied, row, strict=True)
            labels[i] = " ".join(f"{c.removeprefix('settings.')}={v}" for c, v in pairs if v)
    return labels


def _texts(values: pd.Series) -> "pd.Series[str]":
    """The values of a setting as texts, empty where it is absent. pandas turns whole numbers into
    floats if other runs lack the setting."""
    texts = values.astype(str).where(values.notna(), "")
    is_whole = values.hasnans and is_float_dtype(values) and (values.dropna() % 1 == 0).all()
    return texts.str.removesuffix(".0") if is_whole else texts


def by_settings(runs: pd.DataFrame, metric: Metric, *without: str) -> pd.DataFrame:
    """GROUP, fusion, seed and score (the metric on the test split) of each run.

    `variant` holds the settings that differ between runs, as "model.d_model=8", except those that
    start with `without`; it is not the run's folder. If an operator was run with several options,
    `fusion` contains them.
    """
    options = [c for c in settings_columns(runs) if c.startswith("settings.fusion.")]
    of_fusion = varying(runs, ["data", "encoding", "fusion"], options)
    others = settings_columns(runs, "fusion.", *without)
    return runs[["data", "encoding", "seed"]].assign(
        variant=varying(runs, ["data", "encoding"], others),
        fusion=(runs["fusion"] + " " + of_fusion).str.strip(),
        score=metric.of(runs),
    )


def missing(runs: pd.DataFrame) -> list[str]:
    """The runs of each sweep's last command that have no result: their folders, relative to the
    sweep's."""
    absent: dict[str, None] = {}
    for sweep in _sweeps_of(runs):
        asked = read_multirun(sweep).folders
        absent |= dict.fromkeys(f for f in asked if not has_result(sweep / f))
    return [*absent]


def left_out(folder: str | Path, runs: pd.DataFrame) -> int:
    """The number of records below the folder that are not among these runs."""
    return len(results_in(Path(folder))) - len(runs)


def _sweeps_of(runs: pd.DataFrame) -> list[Path]:
    """The folders of the sweeps of these runs. Their names are not always the runs' sweep_id,
    because a sweep may be renamed."""
    sweeps = (sweep_around(Path(folder)) for folder in runs["folder"])
    return list(dict.fromkeys(filter(None, sweeps)))


def declared_family(runs: pd.DataFrame) -> tuple[tuple[str, ...], list[str]]:
    """The operators of the primary family (sweep.primary) of a sweep, empty for all, and a line if
    its commands have several families.

    It is the family of the run that started first, because a later command may have been given
    after results were known. Raises InputError if the sweep's multirun.yaml is damaged.
    """
    started = runs.get("started", pd.Series(None, runs.index, dtype=object)).fillna("").astype(str)
    folders = runs.loc[started.sort_values(kind="stable").index, "folder"]  # older ones lack it
    own = [family for folder in folders if (family := _family_of(Path(folder))) is not None]
    families = [*own, *(read_multirun(sweep).primary for sweep in _sweeps_of(runs))]
    different: dict[frozenset[str], tuple[str, ...]] = {}  # in any order
    for family in families:
        different.setdefault(frozenset(family), family)
    several = [*different.values()] or [()]
    if len(several) == 1:
        return several[0], []
    named = "; ".join(", ".join(family) or "all operators" for family in several)
    line = f"sweep.primary: differs between the sweep's commands ({named}); the first family is "
    return several[0], [f"{line}used, because its run started first; --primary sets another"]


def _family_of(run: Path) -> tuple[str, ...] | None:
    """sweep.primary in a run's config.yaml; None if it cannot be read. Most runs have none, and a
    search in the text is a hundred times as fast as `read_config`."""
    try:
        if NO_FAMILY in read_bytes(run / CONFIG, LARGEST_YAML):
            return ()
        config = yaml.load(read_yaml(run / CONFIG), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        family = tuple(map(str, config["sweep"]["primary"]))
    except (OSError, ValueError, LookupError, TypeError, yaml.YAMLError):
        return None
    return family if all(map(NAME.fullmatch, family)) else None


def failures(folder: str | Path, runs: pd.DataFrame) -> list[str]:
    """The numbers of failed runs of the same sweeps that have no result since, by kind, and a line
    for each run."""
    sweeps, names = _sweeps_of(runs), set(runs["sweep_id"])

    def is_theirs(run: Path, failure: Record) -> bool:
        sweep = sweep_around(run)
        return sweep in sweeps if sweep else _sweep_of(run, failure) in names

    unfinished = [
        (r, f)
        for r, f in failures_in(Path(folder))
        if f["kind"] != AlreadyRunning.kind  # listed as missing
        and not (f["kind"] == "config" and (r / RESULT).exists())  # it changed no result
        and is_theirs(r, f)
    ]
    kinds = Counter("refused" if f["kind"] == "config" else f["kind"] for _, f in unfinished)
    counted = ", ".join(f"{n} {kind}" for kind, n in kinds.items())
    count = [f"runs without a result: {counted}"] if unfinished else []
    return [*count, *(f"{run}: {failure['message']}" for run, failure in unfinished)]


def _sweep_of(run: Path, failure: Record) -> str:
    """The name of a failed run's sweep: the part before data/encoding/fusion[/other
    overrides]/seed=n. The overrides of a damaged failure.json are unknown; nearly all have "="."""
    *parts, last, _ = run.resolve().parts
    has_variant = "=" in last or last == variant_of(map(str, failure["overrides"]))
    return parts[-len(AXES) - has_variant] if len(parts) > len(AXES) else ""


def plan_status(runs: pd.DataFrame) -> str:
    """A sentence that states whether the runs of a sweep test the frozen plan of a study. The
    record of a test run has the digest of its plan."""
    plans = runs.get("plan", pd.Series(None, runs.index, dtype=object))
    if plans.nunique() == 1 and plans.notna().all():
        return "These are the test runs of a study, whose own report has its verdicts."
    why = "its runs do not all test one frozen plan"
    if plans.isna().all():
        why = "no plan was frozen before it ran"
    return f"This sweep is exploratory: {why} (see posfuse study)."
