"""Load a finished run's model from its folder."""

from pathlib import Path

import torch
from omegaconf import OmegaConf

from posfuse.config import Config
from posfuse.data.datamodule import TextDataModule
from posfuse.errors import InputError
from posfuse.runs import records
from posfuse.runs.checks import checked
from posfuse.training.build import build_classifier, build_data
from posfuse.training.checkpoints import read_checkpoint
from posfuse.training.classifier import Classifier


def load_run(folder: str | Path) -> tuple[Config, TextDataModule, Classifier]:
    """A finished run's config, its data, and its classifier with the best weights, on the CPU and
    in eval mode.

    Raises InputError if a file is missing or does not fit the run.
    """
    folder = Path(folder)
    cfg = records.read_config(folder)
    try:
        cfg = checked(OmegaConf.structured(cfg))
    except InputError as error:
        raise InputError(f"{folder / 'config.yaml'}: {error}") from error
    record = records.read_result(folder / records.RESULT)
    data = build_data(cfg)
    changed = [k for k, now in data.facts().items() if k in record and record[k] != now]
    if changed:
        raise InputError(
            f"{folder}: the corpus has changed since the run ({', '.join(changed)}); restore "
            "the data, or train the run again"
        )
    classifier = build_classifier(cfg, data)
    classifier.load_state_dict(_read_weights(folder / records.BEST, classifier))
    return cfg, data, classifier.eval()


def _read_weights(path: Path, classifier: Classifier) -> dict[str, torch.Tensor]:
    """The weights of a checkpoint; raises InputError unless names and shapes fit the classifier."""
    if not records.is_whole(path):
        raise InputError(f"{path}: no valid weights (missing or changed); train the run again")
    found = read_checkpoint(path).get("state_dict", {})
    shapes = {name: weight.shape for name, weight in found.items()}
    expected = {name: weight.shape for name, weight in classifier.state_dict().items()}
    names = sorted(n for n in shapes.keys() | expected if shapes.get(n) != expected.get(n))
    if names:
        raise InputError(
            f"{path}: not the weights that config.yaml describes ({', '.join(names[:3])}); "
            "train the run again"
        )
    weights: dict[str, torch.Tensor] = found
    return weights
