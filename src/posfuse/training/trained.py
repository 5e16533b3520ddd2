"""Load a finished run's model from its folder."""

from pathlib import Path
from typing import Any

import torch
from omegaconf import OmegaConf

from posfuse.config import Config, seed_of
from posfuse.data.datamodule import TextDataModule
from posfuse.errors import InputError
from posfuse.runs import configs, identity, records
from posfuse.runs.checks import checked
from posfuse.seals import is_whole
from posfuse.training.build import build_data, build_module
from posfuse.training.checkpoints import read_checkpoint


def load_run(folder: str | Path) -> tuple[Config, TextDataModule, Any]:
    """A finished run's config, its data, and the module of its task with the best weights, on the
    CPU and in eval mode.

    Raises InputError if a file is missing or does not fit the run.
    """
    folder = Path(folder)
    cfg = configs.read_config(folder)
    if not (folder / records.RESULT).exists():
        raise InputError(f"{folder}: the run is not finished; run its command again")
    record = records.read_result(folder / records.RESULT)
    cfg = configs.with_folders(cfg, folder, record["settings"])
    try:
        cfg = checked(OmegaConf.structured(cfg))
    except InputError as error:
        raise InputError(f"{folder / configs.CONFIG}: {error}") from error
    if record.get("code") not in (None, identity.own_code(cfg).get("code")):
        files = ", ".join(sorted(file.name for file in identity.own_files(cfg)))
        raise InputError(
            f"{folder}: {files} has changed since the run; restore it, or train the run again"
        )
    data = build_data(cfg)
    changed = [k for k, now in data.facts().items() if k in record and record[k] != now]
    if changed:
        raise InputError(
            f"{folder}: the corpus has changed since the run ({', '.join(changed)}); restore "
            "the data, or train the run again"
        )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed_of(cfg, "init"))  # as in a run: a class of the user may draw values
        module = build_module(cfg, data)
    path = folder / records.BEST
    if not is_whole(path):
        raise InputError(f"{path}: no valid weights (missing or changed); train the run again")
    try:
        module.load_state_dict(read_checkpoint(path).get("state_dict", {}))
    except RuntimeError as error:
        first = str(error).splitlines()[1].strip()  # the parameter that does not fit
        raise InputError(
            f"{path}: not the weights that config.yaml describes ({first}); train the run again"
        ) from error
    return cfg, data, module.eval()
