"""An exported model: the run's own probabilities from texts alone, and files that are refused."""

import json
import shutil

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from posfuse.errors import InputError
from posfuse.export import export, load_export
from posfuse.train import train
from small_runs import small_config, write_corpus
from variants import ENCODINGS, OPERATORS


def trained(folder, *overrides):
    corpus = write_corpus(folder / "corpus")
    run = folder / "sweep" / "run"
    run.mkdir(parents=True)
    train(small_config(corpus, "trainer.max_epochs=1", *overrides), run)
    return corpus, run


@pytest.mark.parametrize(
    "overrides",
    [*([f"fusion={name}"] for name in OPERATORS if name != "none"),
     *([f"encoding={name}"] for name in ENCODINGS if name != "none"),
     ["data.vocabulary.unit=bytes", "data.max_len=40"], ["model.token_scale=learned"]],
)  # fmt: skip
def test_it_gives_the_runs_own_predictions(overrides, tmp_path):
    corpus, run = trained(tmp_path, *overrides)
    export(run, tmp_path / "model.safetensors")
    texts = pd.read_parquet(corpus / "test.parquet")["text"].tolist()
    shutil.rmtree(corpus)  # an export needs nothing else
    exported = load_export(tmp_path / "model.safetensors")
    found = pd.read_parquet(run / "predictions.parquet").filter(like="log_p_").to_numpy()
    mine = exported.probabilities(texts).log().numpy()
    np.testing.assert_allclose(mine, found, atol=1e-5)
    assert exported.label_names == ["0", "1", "2"]
    longest = exported.probabilities([texts[0], "", "words that nobody knows"])
    torch.testing.assert_close(longest[0].log(), torch.tensor(mine[0]), atol=1e-5, rtol=0)
    assert longest.isfinite().all()


def test_what_is_no_export_is_refused_in_one_line(tmp_path):
    _, run = trained(tmp_path)
    path = tmp_path / "model.safetensors"
    export(run, path)
    with safe_open(path, "pt") as file:
        weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        header = file.metadata()
    assert json.loads(header["label_names"]) == ["0", "1", "2"]
    bad = {
        "absent": None,
        "cut": path.read_bytes()[:-10],
        "text": b"text",
        "no header": (weights, {}),
        "no config": (weights, {**header, "config": "optim: {lrr: 1}"}),
        "other weights": ({**weights, "more": torch.zeros(1)}, header),
        "no vocabulary": (weights, {**header, "vocabulary": "{}"}),
    }
    for name, content in bad.items():
        path = tmp_path / name
        if isinstance(content, bytes):
            path.write_bytes(content)
        elif content is not None:
            save_file(content[0], path, content[1])
        with pytest.raises(InputError, match=r"not a model .* export its run again") as caught:
            load_export(path)
        assert str(path) in str(caught.value)
        assert "\n" not in str(caught.value)
