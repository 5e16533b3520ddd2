"""The diagnostics that runs write into their folders."""

import math

import numpy as np
import pandas as pd
import pytest
import torch

from documented import undocumented
from posfuse.runs import records
from posfuse.train import train
from posfuse.training import observers
from small_runs import REFERENCE, small_config


def rows(folder, name, by=""):
    frame = pd.read_parquet(folder / records.DIAGNOSTICS)
    return frame[(frame["name"] == name) & (frame["by"] == by)]


@pytest.fixture(scope="module")
def other_runs(corpus, tmp_path_factory):
    """The folders of runs with an operator that has no gate, and with one that has no parts."""
    folders = {name: tmp_path_factory.mktemp(name) for name in ("add", "mlp")}
    for name, folder in folders.items():
        train(small_config(corpus, f"fusion={name}"), folder)
    return folders


def test_a_run_has_a_row_for_each_epoch(reference):
    folder, _ = reference
    for name in ("token_norm", "norm_ratio", "gate_mean", "gate_entropy", "fusion_gradient_norm"):
        assert rows(folder, name)["epoch"].tolist() == [1, 2, 3, 4], name
    assert rows(folder, "attention_entropy", "layer")["low"].tolist() == [1] * 4
    assert set(rows(folder, "gate_mean", "position")["low"]) == {0, 1, 2, 4, 8}
    assert len(rows(folder, "gate_mean", "frequency")) >= 4
    assert rows(folder, "fusion_gradient_norm")["n"].tolist() == [1] * 4  # of 4 steps an epoch
    assert (rows(folder, "fusion_gradient_norm")["value"] > 0).all()
    assert rows(folder, "token_scale")["value"].tolist() == [pytest.approx(8**0.5)] * 4


def test_there_are_no_rows_of_what_an_operator_lacks(other_runs):
    assert rows(other_runs["add"], "gate_mean").empty
    assert rows(other_runs["add"], "fusion_gradient_norm").empty
    assert rows(other_runs["mlp"], "token_norm").empty
    assert len(rows(other_runs["mlp"], "fusion_gradient_norm")) == 4


def test_the_docs_name_all_parts_of_the_files(reference, other_runs):
    for folder in (reference[0], *other_runs.values()):
        assert undocumented(folder) == set()


def test_the_worth_of_position_is_in_the_record_and_in_the_file(reference, other_runs):
    for folder in (reference[0], *other_runs.values()):
        record = records.read_result(folder / records.RESULT)
        worth = record["position"]
        assert worth["documents"] == 20
        assert worth["offset"] == 512 // 8
        assert worth["accuracy"] == pytest.approx(record["test"]["accuracy"])  # none was cut
        for name in ("accuracy", "accuracy_shuffled"):
            row = rows(folder, name).iloc[0]
            assert row["epoch"] == record["best_epoch"]
            assert row["value"] == worth[name.removeprefix("accuracy_")]
        for name, offset in (("accuracy_unshifted", 0), ("accuracy_shifted", 64)):
            row = rows(folder, name, "offset").iloc[0]
            assert (row["low"], row["high"]) == (offset, offset)
            assert row["value"] == worth[name.removeprefix("accuracy_")]


def test_the_gradient_norm_is_that_of_all_of_the_operators_gradients(corpus, tmp_path, monkeypatch):
    norms, original = [], observers.Diagnostics.on_before_optimizer_step

    def look(self, trainer, module, optimizer):
        parts = [p.grad.flatten() for p in module.model.fusion.parameters()]
        norms.append(math.dist(torch.cat(parts).tolist(), [0.0] * sum(map(len, parts))))
        original(self, trainer, module, optimizer)

    monkeypatch.setattr(observers.Diagnostics, "on_before_optimizer_step", look)
    monkeypatch.setattr(observers, "GRADIENT_STEPS", 1)
    train(small_config(corpus, "fusion=concat", "trainer.clip_norm=0.001"), tmp_path)
    found = rows(tmp_path, "fusion_gradient_norm")["value"].tolist()
    assert found == pytest.approx(np.reshape(norms, (4, 4)).mean(1).tolist(), rel=1e-5)


def test_diagnostics_do_not_change_the_run(reference, corpus, tmp_path, monkeypatch):
    for name in ("on_before_optimizer_step", "on_train_epoch_end"):
        monkeypatch.setattr(observers.Diagnostics, name, lambda *arguments: None)
    train(small_config(corpus, *REFERENCE), tmp_path)
    without, with_them = (
        pd.read_parquet(f / records.PREDICTIONS) for f in (tmp_path, reference[0])
    )
    pd.testing.assert_frame_equal(without, with_them, check_exact=True)


def test_every_epoch_has_a_gradient_norm_whatever_its_number_of_steps(corpus, tmp_path):
    for batch_size, counted in ((60, 1), (12, 2)):  # 1 and 5 steps; the reference has 4
        size = f"data.batch_size={batch_size}"
        cfg = small_config(corpus, "fusion=concat", "trainer.max_epochs=2", size)
        folder = tmp_path / str(batch_size)
        train(cfg, folder)
        assert rows(folder, "fusion_gradient_norm")["n"].tolist() == [counted] * 2, batch_size
