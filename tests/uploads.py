"""W&B of this process with the server of fake_wandb.py, posfuse sync, and what the server holds."""

import json
import os
from contextlib import contextmanager
from pathlib import Path

import pandas as pd
import pytest
import wandb

from commands import called
from posfuse.runs import records
from posfuse.tracking import places, projection, upload
from posfuse.tracking.places import PLACES

EPOCHS = 3  # of a run with 60 documents in batches of 16, which is 4 steps an epoch
KEY = "0123456789abcdef" * 2 + "plantedk"
ALL_STEPS = [4, 8, 12, 13]  # of W&B's rows: one per epoch, and the charts


@contextmanager
def in_use(fake, home, user=""):
    """Have W&B of this process use the server, with a key and an empty home directory.

    W&B reads its variables once, so its process is ended before and afterwards.
    """
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("WANDB_")]:
            patch.delenv(name)
        patch.setenv("MPLCONFIGDIR", str(Path("~/.config/matplotlib").expanduser()))
        patch.setenv("HOME", str(home))
        patch.setenv("WANDB_BASE_URL", fake.url.replace("//", f"//{user}"))
        patch.setenv("WANDB_API_KEY", KEY)
        for part in ("GRAPHQL", "FILE_STREAM"):
            patch.setenv(f"WANDB_X_{part}_RETRY_MAX", "1")
        patch.setenv("WANDB_X_FILE_STREAM_TRANSMIT_INTERVAL", "0.5")  # seconds; 15 by default
        # posfuse sets these for the process; now they are unset, and are so again afterwards
        for name in (*PLACES, "WANDB_SILENT", "WANDB_ERROR_REPORTING", "WANDB_MODE"):
            patch.setenv(name, "")
            patch.delenv(name)
        patch.setattr(places, "_set", {})
        wandb.teardown()
        try:
            yield
        finally:
            wandb.teardown()


def environment(**more):
    """For a command: without the address of W&B's process of this one."""
    return {k: v for k, v in os.environ.items() if k != "WANDB_SERVICE"} | more


def synced(folder, *arguments):
    """Call posfuse sync in this process; returns its exit status, output and error lines."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(upload, "PAUSES", (0,))
        out, error = called("sync", folder, *arguments)
    return int(error is not None), out, (error or "").splitlines()


def check_held(fake, run, run_id):
    """The server holds this run, each epoch once."""
    there, record = fake.runs[run_id], run.record
    assert there.exit_code == 0
    assert [row["_step"] for row in there.history] == ALL_STEPS
    assert [row["trainer/global_step"] for row in there.history] == [4, 8, 12, 12]
    history = pd.read_csv(run.folder / records.HISTORY, float_precision="round_trip")
    for column in ("train_loss", "val_loss", "val_accuracy", "val_macro_f1"):
        logged = [row[column.replace("_", "/", 1)] for row in there.history[:-1]]
        assert logged == history[column].tolist()
    diagnostics = pd.read_parquet(run.folder / records.DIAGNOSTICS)
    last = diagnostics[(diagnostics["epoch"] == EPOCHS) & (diagnostics["name"] == "norm_ratio")]
    value = last.loc[(last["by"] == "position") & (last["low"] == 4), "value"].item()
    assert there.history[-2]["diagnostics/norm_ratio_position_4"] == value
    shown = diagnostics["epoch"].eq(EPOCHS) & ~diagnostics["name"].str.startswith("accuracy")
    logged = [v for k, v in there.history[-2].items() if k.startswith("diagnostics/")]
    assert sorted(logged) == sorted(diagnostics.loc[shown, "value"])
    for part in ("test", "position"):
        for name, number in record[part].items():
            assert there.summary[f"{part}/{name}"] == number
    assert there.summary["val/accuracy"] == record["validation"]["accuracy"]
    assert there.summary["best_epoch"] == record["best_epoch"]
    values = {key: item["value"] for key, item in there.config.items() if "value" in item}
    assert {k: values[k] for k in projection.config(record)} == projection.config(record)
    assert values["fusion"] == record["fusion"]
    assert values["commit"] == record["commit"]
    assert "repo" not in there.settings
    (artifact,) = (a for a in there.artifacts if a["type"] == "result")
    assert artifact["files"]["result.json"] == (run.folder / records.RESULT).read_bytes()
    (table,) = (v for k, v in there.files.items() if k.startswith("media/table/confusion_matrix"))
    right = sum(n for actual, predicted, n in json.loads(table)["data"] if actual == predicted)
    assert right == round(20 * record["test"]["accuracy"])
    images = [name for name in there.files if name.startswith("media/images/gate_")]
    assert len(images) == (record["fusion"] == "gate_scalar")
