"""W&B of this process with the server of fake_wandb.py, posfuse sync, and what the server holds."""

import json
import os
from contextlib import contextmanager

import pandas as pd
import pytest
import wandb

from commands import called
from posfuse.runs import records
from posfuse.tracking import projection, server, upload
from posfuse.tracking.server import PLACES

EPOCHS = 4  # of a small run with 60 documents in batches of 16, which is 4 steps an epoch
KEY = "0123456789abcdef" * 2 + "plantedk"
ALL_STEPS = [4, 8, 12, 16, 17]  # of W&B's rows: one per epoch, and the charts


@contextmanager
def restarted():
    """W&B reads its variables once, so its process is ended before and afterwards."""
    wandb.teardown()
    try:
        yield
    finally:
        wandb.teardown()


@contextmanager
def in_use(fake, home):
    """Have W&B of this process use the server, with a key, a token in the address, and an empty
    home directory."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("WANDB_")]:
            patch.delenv(name)
        patch.setenv("HOME", str(home))
        patch.setenv("WANDB_BASE_URL", fake.url.replace("//", "//user:secret@"))
        patch.setenv("WANDB_API_KEY", KEY)
        for part in ("GRAPHQL", "FILE_STREAM"):
            patch.setenv(f"WANDB_X_{part}_RETRY_MAX", "1")
        patch.setenv("WANDB_X_FILE_STREAM_TRANSMIT_INTERVAL", "0.5")  # seconds; 15 by default
        # posfuse sets these for the process; now they are unset, and are so again afterwards
        for name in (*PLACES, "WANDB_SILENT", "WANDB_ERROR_REPORTING", "WANDB_MODE"):
            patch.setenv(name, "")
            patch.delenv(name)
        patch.setattr(server, "_set", {})
        with restarted():
            yield


def environment(**more):
    """For a command: without the address of W&B's process of this one."""
    return {k: v for k, v in os.environ.items() if k != "WANDB_SERVICE"} | more


def synced(folder, *arguments):
    """Call posfuse sync in this process; returns its exit status, output and error lines."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(upload, "PAUSES", (0,))
        out, error = called("sync", folder, *arguments)
    return int(error is not None), out, (error or "").splitlines()


def check_summary(summary, best, last):
    """The history's metrics in the summary are those of the best evaluation, or named last/."""
    own = {key: value for key, value in best.items() if not key.startswith("_")}
    assert {key: summary[key] for key in own} == own
    assert summary["epoch"] == summary["best_epoch"]
    own = {f"last/{key}": value for key, value in last.items() if not key.startswith("_")}
    assert {key: summary[key] for key in own} == own


def check_held(fake, run):
    """The server holds this run, each epoch once."""
    there, record = fake.runs[run.id], run.record
    assert there.exit_code == 0
    assert [row["_step"] for row in there.history] == ALL_STEPS
    assert [row["trainer/global_step"] for row in there.history] == [4, 8, 12, 16, 16]
    history = pd.read_csv(run.folder / records.HISTORY, float_precision="round_trip")
    for column in ("train_loss", "val_loss", "val_accuracy", "val_macro_f1"):
        logged = [row[column.replace("_", "/", 1)] for row in there.history[:-1]]
        assert logged == history[column].tolist()
    diagnostics = pd.read_parquet(run.folder / records.DIAGNOSTICS)
    assert table_of(there, "diagnostics_table") == diagnostics.to_numpy().tolist()
    shown = diagnostics["epoch"].eq(EPOCHS) & diagnostics["by"].isin(["", "layer"])
    shown &= ~diagnostics["name"].str.startswith("accuracy")
    logged = [v for k, v in there.history[-2].items() if k.startswith("diagnostics/")]
    assert sorted(logged) == sorted(diagnostics.loc[shown, "value"])
    assert len(logged) < 10
    for name in ("tokens_per_second", "peak_memory_bytes", "latency_ms"):
        assert there.summary[name] == record[name]
    assert there.summary["seconds"] == sum(record["seconds"].values())
    assert there.summary["mean_tokens"] == record["mean_tokens"]["train"]
    for part in ("test", "position"):
        for name, number in record[part].items():
            assert there.summary[f"{part}/{name}"] == number
    assert there.summary["val/accuracy"] == record["validation"]["accuracy"]
    assert there.summary["best_epoch"] == record["best_epoch"]
    check_summary(there.summary, there.history[record["best_evaluation"] - 1], there.history[-2])
    values = {key: item["value"] for key, item in there.config.items() if "value" in item}
    assert {k: values[k] for k in projection.config(record)} == projection.config(record)
    assert values["fusion"] == record["fusion"]
    assert (values["commit"], values["started"]) == (record["commit"], record["started"])
    assert values["host"] == record["host"]["name"]
    assert there.settings["jobType"] == "train"
    assert "repo" not in there.settings
    (artifact,) = (a for a in there.artifacts if a["type"] == "result")
    assert artifact["files"]["result.json"] == (run.folder / records.RESULT).read_bytes()
    matrix = table_of(there, projection.confusion_key(record["data"]))
    right = sum(n for actual, predicted, n in matrix if actual == predicted)
    assert right == round(20 * record["test"]["accuracy"])
    has_gates = record["fusion"] == "gate_scalar"
    assert any(name.startswith("media/table/gates") for name in there.files) == has_gates
    if has_gates:
        best = diagnostics["epoch"].eq(record["best_epoch"]) & diagnostics["by"].eq("position")
        gates = diagnostics[best & diagnostics["name"].eq("gate_mean")]
        assert table_of(there, "gates") == gates[["low", "value"]].to_numpy().tolist()


def table_of(run, name):
    """The rows of a table that the server holds."""
    (table,) = (v for k, v in run.files.items() if k.startswith(f"media/table/{name}"))
    return json.loads(table)["data"]
