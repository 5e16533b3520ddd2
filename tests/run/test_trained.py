"""A finished run read back: what is missing or does not fit is named.

test_lengths.py compares the predictions of a loaded model with those of its run.
"""

import re
import shutil

import pytest
import torch
from omegaconf import OmegaConf

from posfuse.training.trained import load_run
from refusals import refusal


@pytest.fixture
def run(reference, tmp_path):
    """A copy of a run to damage."""
    return shutil.copytree(reference[0], tmp_path / "run")


def without(name):
    return lambda folder: (folder / name).unlink()


def changed(key, value):
    def change(folder):
        config = OmegaConf.load(folder / "config.yaml")
        OmegaConf.update(config, key, value)
        OmegaConf.save(config, folder / "config.yaml")

    return change


def other_weights(folder):
    path = folder / "checkpoints" / "best.ckpt"
    checkpoint = torch.load(path, weights_only=True)
    checkpoint["state_dict"].popitem()
    torch.save(checkpoint, path)


DAMAGES = {
    "no config": (without("config.yaml"), r"config\.yaml: cannot be read .* give a finished"),
    "a list": (lambda run: (run / "config.yaml").write_text("- a"), r"config\.yaml: cannot be"),
    "unknown key": (changed("colour", 1), r"config\.yaml: cannot be read .*colour"),
    "unknown operator": (changed("fusion._target_", "posfuse.no"), r"config\.yaml: .*posfuse\.no"),
    "not finished": (without("result.json"), r"the run is not finished; run its command again"),
    "other corpus": (changed("data.limit", 12), r"corpus has changed since the run \(documents"),
    "no weights": (without("checkpoints/best.ckpt"), r"best\.ckpt: no valid weights"),
    "other operator": (
        changed("fusion", {"name": "gate_cnn", "_target_": "posfuse.model.fusion.GateCNN"}),
        r"best\.ckpt: not the weights that config\.yaml describes \(.*model\.fusion",
    ),
    "a weight less": (other_weights, r"best\.ckpt: no valid weights .*changed"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_what_is_missing_or_does_not_fit_is_named(name, run) -> None:
    damage, message = DAMAGES[name]
    damage(run)
    assert re.search(message, refusal(load_run, run))
