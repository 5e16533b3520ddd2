"""A checkpoint is whole or refused, and several processes of a run save at the same step."""

from types import SimpleNamespace

import pytest
import torch

from posfuse.process import signals
from posfuse.training.checkpoints import AGREE_EVERY, Checkpoints, WholeFiles, read_checkpoint
from refusals import refusal

OWNER = {"fingerprint": "a" * 16, "code": "c" * 16}


@pytest.fixture
def saved(tmp_path):
    """A checkpoint's file, and what is in it."""
    path, content = tmp_path / "checkpoints" / "last.ckpt", {"weights": torch.arange(8.0), "n": 3}
    content["callbacks"] = {"Checkpoints": Checkpoints(path, 1e9, OWNER).state_dict()}
    WholeFiles(OWNER).save_checkpoint(content, path)
    return path, content


def test_a_saved_checkpoint_is_read(saved):
    path, content = saved
    found = WholeFiles(OWNER).load_checkpoint(path)
    assert found["n"] == content["n"]
    assert torch.equal(found["weights"], content["weights"])
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_the_checkpoint_of_another_configuration_is_refused_by_its_name(saved):
    for owner in ({**OWNER, "code": "d"}, {**OWNER, "fingerprint": "d"}):
        line = refusal(WholeFiles(owner).load_checkpoint, saved[0])
        assert line.startswith(f"{saved[0]}: belongs to another configuration, or its data or your")
        assert line.endswith("sweep_id=NAME for a new folder, or remove that file to start again")


def test_the_checkpoint_of_an_earlier_version_has_no_code(tmp_path):
    content = {"callbacks": {"Checkpoints": {"fingerprint": OWNER["fingerprint"]}}}
    WholeFiles(OWNER).save_checkpoint(content, tmp_path / "last.ckpt")
    assert WholeFiles(OWNER).load_checkpoint(tmp_path / "last.ckpt") == content


def test_a_damaged_checkpoint_is_refused_by_its_name(saved):
    path, _ = saved
    whole = path.read_bytes()
    at = whole.index(torch.arange(8.0).numpy().tobytes())
    for content, reason in (
        (whole[:at] + b"\x01" + whole[at + 1 :], "data/0 is damaged"),
        (whole[: len(whole) // 2], ""),
        (b"", ""),
        (whole.replace(b"data.pkl", b"date.pkl"), ""),
    ):
        path.write_bytes(content)
        line = refusal(read_checkpoint, path)
        assert line.startswith(f"{path}: cannot be read (")
        assert reason in line
        assert "cannot be read ()" not in line
        assert line.endswith(f"; remove {path.parent} to run again")


def test_an_absent_checkpoint_has_the_systems_reason(tmp_path):
    line = refusal(read_checkpoint, tmp_path / "last.ckpt")
    assert "cannot be read (No such file or directory); remove" in line


def trainer_with(save, **facts):
    """A trainer in the middle of an epoch; `save` is its way to save a checkpoint."""
    progress = SimpleNamespace(is_last_batch=False)
    loop = SimpleNamespace(epoch_loop=SimpleNamespace(batch_progress=progress))
    return SimpleNamespace(is_global_zero=False, fit_loop=loop, save_checkpoint=save, **facts)


def test_processes_of_one_run_save_at_the_steps_at_which_they_agree(tmp_path, monkeypatch):
    monkeypatch.setattr(signals, "_received", {"SIGTERM": 0.0})
    saves, asked = [], []
    strategy = SimpleNamespace(broadcast=lambda due: asked.append(due) or due)
    trainer = trainer_with(
        lambda path: saves.append(trainer.global_step),
        world_size=2, accumulate_grad_batches=1, strategy=strategy,
    )  # fmt: skip
    callback = Checkpoints(tmp_path / "last.ckpt", 1e9, OWNER)
    for trainer.global_step in range(1, 2 * AGREE_EVERY + 2):
        callback.on_train_batch_end(trainer, None, None, None, 0)
    assert saves == [AGREE_EVERY, 2 * AGREE_EVERY]
    assert asked == [True, True]


def test_a_run_is_saved_between_steps_and_not_between_their_batches(tmp_path, monkeypatch):
    monkeypatch.setattr(signals, "_received", {"SIGTERM": 0.0})
    saves = []
    trainer = trainer_with(
        lambda path: saves.append(batch), world_size=1, accumulate_grad_batches=3
    )
    callback = Checkpoints(tmp_path / "last.ckpt", 1e9, OWNER)
    for batch in range(7):
        callback.on_train_batch_end(trainer, None, None, None, batch)
    assert saves == [2, 5]
