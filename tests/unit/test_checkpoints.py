"""A checkpoint is whole or refused, and several processes of a run save at the same step."""

from types import SimpleNamespace

import pytest
import torch

from posfuse.process import signals
from posfuse.training.checkpoints import AGREE_EVERY, Checkpoints, WholeFiles, read_checkpoint
from refusals import refusal

OWNER = {"fingerprint": "a" * 16, "code": "c" * 16}


def test_the_checkpoint_of_an_earlier_version_has_no_code(tmp_path):
    content = {"callbacks": {"Checkpoints": {"fingerprint": OWNER["fingerprint"]}}}
    WholeFiles(OWNER).save_checkpoint(content, tmp_path / "last.ckpt")
    assert WholeFiles(OWNER).load_checkpoint(tmp_path / "last.ckpt") == content


def test_a_damaged_checkpoint_is_refused_by_its_name(tmp_path):
    path = tmp_path / "checkpoints" / "last.ckpt"
    WholeFiles(OWNER).save_checkpoint({"weights": torch.arange(8.0), "n": 3}, path)
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    whole = path.read_bytes()
    at = whole.index(torch.arange(8.0).numpy().tobytes())
    for content, reason in (
        (whole[:at] + b"\x01" + whole[at + 1 :], "data/0 is damaged"),
        (whole[: len(whole) // 2], ""),
        (b"", ""),
        (whole.replace(b"data.pkl", b"date.pkl"), ""),
        (None, "(No such file or directory)"),
    ):
        path.unlink()
        if content is not None:
            path.write_bytes(content)
        line = refusal(read_checkpoint, path)
        assert line.startswith(f"{path}: cannot be read (")
        assert reason in line
        assert "cannot be read ()" not in line
        assert line.endswith(f"; remove {path.parent} to run again")


@pytest.mark.parametrize(
    ("processes", "batches_of_a_step", "expected"),
    [(2, 1, [AGREE_EVERY, 2 * AGREE_EVERY]), (1, 3, [*range(2, 2 * AGREE_EVERY + 1, 3)])],
)
def test_a_stopped_run_is_saved_between_steps_on_which_its_processes_agree(
    processes, batches_of_a_step, expected, tmp_path, monkeypatch
):
    monkeypatch.setattr(signals, "_received", {"SIGTERM": 0.0})
    saves, asked = [], []
    progress = SimpleNamespace(is_last_batch=False)
    trainer = SimpleNamespace(
        is_global_zero=False,
        world_size=processes,
        accumulate_grad_batches=batches_of_a_step,
        fit_loop=SimpleNamespace(epoch_loop=SimpleNamespace(batch_progress=progress)),
        strategy=SimpleNamespace(broadcast=lambda due: asked.append(due) or due),
        save_checkpoint=lambda path: saves.append(trainer.global_step),
    )
    callback = Checkpoints(tmp_path / "last.ckpt", 1e9, OWNER)
    for trainer.global_step in range(1, 2 * AGREE_EVERY + 1):
        callback.on_train_batch_end(trainer, None, None, None, trainer.global_step)
    assert saves == expected
    assert asked == [True] * 2 * (processes - 1)
