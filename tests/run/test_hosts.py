"""Runs with host=transformers: trained, skipped, resumed, loaded, reported."""

import pandas as pd
import pytest

from posfuse.errors import InputError
from posfuse.runs import records
from posfuse.runs.checks import checked
from posfuse.train import train
from posfuse.training.export import export
from processes import assert_same_files
from small_pretrained import host_overrides, write_pretrained
from small_runs import composed, interrupted

RUN = [
    "data=folder", "data.name=tiny", "data.batch_size=16", "data.max_len=10", "fusion=gate_scalar",
    "trainer.max_epochs=2", "trainer.accelerator=cpu", "trainer.threads=1", "logger=none",
]  # fmt: skip


@pytest.fixture(scope="module")
def cfg(corpus, tmp_path_factory):
    root = tmp_path_factory.mktemp("hosts")
    bert = host_overrides(write_pretrained(root / "bert"))
    own = [*RUN, f"data.path={corpus}", f"cache_dir={root / 'cache'}"]
    return checked(composed(*own, *bert))


@pytest.fixture(scope="module")
def first(cfg, tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    return folder, train(cfg, folder)


def test_the_record_and_the_measurements(first, cfg):
    folder, record = first
    assert train(cfg, folder) == record  # skipped
    assert record["settings"]["host.name"] == "transformers"
    assert len(record["settings"]["host.path"]) == 64
    assert record["settings"]["model.d_model"] is None
    assert record["fusion_parameters"] == 2 * 16 + 1
    named = set(pd.read_parquet(folder / records.DIAGNOSTICS)["name"])
    assert {"gate_mean", "norm_ratio", "accuracy_shuffled"} <= named
    assert "attention_entropy" not in named
    found = pd.read_parquet(folder / records.MECHANISM)
    assert {name.split("_")[0] for name in found["name"]} == {"patch", "probe"}


def test_it_resumes_where_it_was(first, cfg, tmp_path):
    interrupted(cfg, tmp_path, 5)
    assert (tmp_path / records.LAST).exists()
    train(cfg, tmp_path)
    assert_same_files(first[0], tmp_path)


def test_it_is_not_exported(first, tmp_path):
    with pytest.raises(InputError, match="host=transformers, and such a model is not exported"):
        export(first[0], tmp_path / "model.safetensors")
