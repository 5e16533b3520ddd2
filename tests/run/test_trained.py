"""A finished run read back: its model, its gates, its words."""

import shutil

import numpy as np
import pandas as pd
import pytest
import torch
from omegaconf import OmegaConf

from posfuse.errors import InputError
from posfuse.model.fusion import Gated
from posfuse.train import train
from posfuse.training.trained import load_run
from small_runs import small_config
from variants import OPERATORS, make_fusion, random_tensor

GATES = [name for name in OPERATORS if isinstance(make_fusion(name, 4), Gated)]


@pytest.fixture(scope="module")
def finished(corpus, tmp_path_factory):
    """The folder of a finished run."""
    folder = tmp_path_factory.mktemp("finished")
    train(small_config(corpus, "seed=3", "fusion=gate_scalar", "trainer.max_epochs=2"), folder)
    return folder


@pytest.fixture
def run(finished, tmp_path):
    """A copy of it to damage."""
    return shutil.copytree(finished, tmp_path / "run")


def test_the_loaded_model_predicts_what_the_run_predicted(finished) -> None:
    cfg, data, classifier = load_run(str(finished))
    assert cfg.seed == 3
    assert not classifier.training
    frame = pd.read_parquet(finished / "predictions.parquet")
    logits = torch.empty(len(frame), 3)
    with torch.no_grad():
        for batch in data.test_dataloader():
            logits[batch.index] = classifier.model(batch.ids, batch.lengths)
    log_p = logits.log_softmax(-1)
    assert log_p.argmax(-1).tolist() == frame["predicted"].tolist()
    expected = frame[["log_p_0", "log_p_1", "log_p_2"]].to_numpy()
    np.testing.assert_allclose(log_p.numpy(), expected, rtol=0, atol=1e-5)


def test_a_run_is_loaded_from_any_folder(corpus, tmp_path, monkeypatch) -> None:
    shutil.copytree(corpus, tmp_path / "corpus")
    monkeypatch.chdir(tmp_path)
    cfg = small_config(corpus, "data.path=corpus", "cache_dir=out/.cache", "trainer.max_epochs=1")
    (tmp_path / "out" / "run").mkdir(parents=True)
    train(cfg, tmp_path / "out" / "run")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    load_run("../out/run")
    assert not list((tmp_path / "elsewhere").iterdir())  # no second cache


def test_ids_become_words_again(finished, corpus) -> None:
    store = load_run(finished)[1].store
    for split, part in store.splits.items():
        texts = pd.read_parquet(corpus / f"{split}.parquet")["text"]
        for text, start, end in zip(texts, part.offsets, part.offsets[1:], strict=False):
            found = store.words(part.ids[start:end])
            assert [w for w in found if w != "<unk>"] == [
                w for w, f in zip(text.split(), found, strict=True) if f != "<unk>"
            ]
    assert store.words([0, 1]) == ["<pad>", "<unk>"]


def without(name):
    return lambda folder: (folder / name).unlink()


def overwritten(name, text):
    return lambda folder: (folder / name).write_text(text)


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
    "no yaml": (overwritten("config.yaml", "a: [1"), r"config\.yaml: cannot be read"),
    "a list": (overwritten("config.yaml", "- a"), r"config\.yaml: "),
    "unknown key": (changed("colour", 1), r"config\.yaml: does not fit this version .*colour"),
    "unknown operator": (changed("fusion._target_", "posfuse.no"), r"config\.yaml: .*posfuse\.no"),
    "not finished": (without("result.json"), r"the run is not finished; run its command again"),
    "other corpus": (
        changed("data.limit", 12),
        r"the corpus has changed since the run \(documents",
    ),
    "no weights": (without("checkpoints/best.ckpt"), r"best\.ckpt: no valid weights"),
    "cut weights": (overwritten("checkpoints/best.ckpt", ""), r"best\.ckpt: no valid weights"),
    "no checkpoint": (overwritten("checkpoints/best.ckpt", "x"), r"best\.ckpt: no valid weights"),
    "other operator": (
        changed("fusion", {"name": "gate_cnn", "_target_": "posfuse.model.fusion.GateCNN"}),
        r"best\.ckpt: not the weights that config\.yaml describes \(model\.fusion",
    ),
    "other width": (changed("model.d_ff", 32), r"best\.ckpt: not the weights .*encoder"),
    "a weight less": (other_weights, r"best\.ckpt: no valid weights .*changed"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_what_is_missing_or_does_not_fit_is_named(name, run) -> None:
    damage, message = DAMAGES[name]
    damage(run)
    with pytest.raises(InputError, match=message) as caught:
        load_run(run)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", GATES)
def test_an_operator_uses_the_gate_that_it_reports(name) -> None:
    operator = make_fusion(name, 4).double()
    for i, parameter in enumerate(operator.parameters()):
        parameter.data = random_tensor(*parameter.shape, seed=i)
    tokens, table = random_tensor(2, 5, 4, seed=8), random_tensor(7, 4, seed=9)
    gate = operator.gate(*operator.parts(tokens, table))
    assert gate.shape[-2:] in {(5, 1), (5, 4)}
    assert ((gate > 0) & (gate < 1)).all()
    mixed = gate * tokens + (1 - gate) * table[:5]
    torch.testing.assert_close(operator(tokens, table), mixed, rtol=0, atol=1e-12)
