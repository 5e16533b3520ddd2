"""posfuse sync: the server holds each finished run once; what it lacks, and what cannot be
uploaded, is named."""

import copy
import shutil

import pandas as pd
import pytest

from fake_wandb import ENTITY
from posfuse import seals
from posfuse.errors import Conflict
from posfuse.runs import configs, records
from posfuse.tracking import upload
from posfuse.tracking.projection import Finished
from posfuse.train import train
from small_records import write_failure
from small_runs import REFERENCE, small_config
from uploads import ALL_STEPS, check_held, check_summary, restarted, synced


@pytest.fixture
def sweep(reference, tmp_path):
    """A sweep of one finished run."""
    shutil.copytree(reference[0], tmp_path / "mine" / "seed=0")
    return tmp_path / "mine"


def test_a_run_is_uploaded_once_and_what_the_server_lacks_is_named(fake, sweep):
    folder = sweep / "seed=0"
    cfg = configs.read_config(folder)
    cfg.logger.artifacts = ["result", "predictions", "model"]
    configs.write_config(folder, cfg)
    held = f"{fake.url} holds 1 of 1 runs\nresults: {fake.url}/{ENTITY}/posfuse\n"
    held += f"next: posfuse dashboard {sweep}\n"
    assert synced(sweep) == (0, held, [])
    runs, _ = upload.read(sweep, "")
    ((name, run),) = fake.runs.items()
    check_held(fake, runs[0])
    fake.asked.clear()
    assert synced(sweep) == (0, held, [])
    assert "UpsertBucket" not in fake.asked
    assert {path.name for path in sweep.iterdir()} == {"seed=0", ".wandb"}

    files = {a["type"]: a["files"] for a in run.artifacts if a["type"] in cfg.logger.artifacts}
    assert "predictions.parquet" in files["predictions"]
    assert files["model"]["best.ckpt"] == (folder / records.BEST).read_bytes()

    def lacks(part, changed):
        """The reason, where the server has this in place of a part of the run."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(run, part, changed)
            ((_, reason),) = upload.lacking(runs)
        return reason

    others = [artifact for artifact in run.artifacts if artifact["type"] != "model"]
    for part, changed, reason in (
        ("history", [], f"the server's last step is -1, not {ALL_STEPS[-1]}"),
        ("artifacts", [], f"the server has no artifact result-{name}"),
        ("artifacts", others, f"the server has no artifact model-{name}"),
        ("config", run.config | {"fusion": {"value": "x"}}, "the config on the server differs (fu"),
        ("summary", run.summary | {"epoch": -1}, "the summary on the server differs (epoch)"),
    ):
        assert lacks(part, changed).startswith(reason)
    others, _ = upload.read(sweep, "2")
    assert upload.lacking(others) == [(others[0], f"not on the server under the id {name}-2")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "project", "another")
        assert upload.on_server(runs) == {}


def test_no_dashboard_is_proposed_for_several_sweeps(fake, sweep):
    other = shutil.copytree(sweep / "seed=0", sweep.parent / "other" / "seed=0")
    record = records.read_result(other / records.RESULT)
    records.write_result(other, record | {"sweep_id": "other"})
    status, out, _ = synced(sweep.parent)
    assert status == 0
    assert f"{fake.url} holds 2 of 2 runs\n" in out
    assert "next: " not in out


@pytest.mark.slow
def test_what_did_not_arrive_is_named_and_the_next_sync_completes_it(fake, sweep):
    run = Finished.read(sweep / "seed=0")
    name = run.id
    fake.lose = {name}
    status, out, (line,) = synced(sweep)
    assert (status, out) == (1, f"{fake.url} holds 0 of 1 runs\n")
    message = f"the server's last step is -1, not {ALL_STEPS[-1]}; retry, or "
    assert line.startswith(f"error: {run.folder}: {message}")
    fake.lose = set()
    assert synced(sweep)[0] == 0
    check_held(fake, run)
    there = fake.runs[name]  # as after an online run that was killed
    del there.history[2:]
    there.summary, there.config["fusion"]["value"] = {"_step": 8}, "another"
    there.artifacts.clear()
    assert synced(sweep)[0] == 0
    check_held(fake, run)
    del there.summary["test/accuracy"]
    assert synced(sweep)[0] == 0
    check_held(fake, run)


@pytest.mark.slow
def test_a_deleted_run_is_uploaded_under_a_new_id(fake, sweep):
    name = Finished.read(sweep / "seed=0").id
    fake.deleted.add(name)
    status, out, (line,) = synced(sweep)
    assert (status, out) == (1, f"{fake.url} holds 0 of 1 runs\n")
    assert line.startswith(f"error: {sweep / 'seed=0'}: W&B: ")
    assert line.endswith("under new ids with a new suffix, such as --suffix=2")
    status, out, _ = synced(sweep, "--suffix=2")
    assert status == 0
    assert f"next: posfuse dashboard --suffix=2 {sweep}" in out
    assert list(fake.runs) == [f"{name}-2"]


def test_the_summary_is_of_the_best_evaluation(fake, corpus, tmp_path):
    """Diagnostics are measured after both evaluations of an epoch."""
    folder = tmp_path / "mine" / "seed=3"
    own = (*REFERENCE, "trainer.evaluations=2", "optim.lr=0.05")
    record = train(small_config(corpus, *own), folder)
    best = record["best_evaluation"]
    assert best < record["evaluations"] == 8
    assert synced(tmp_path / "mine")[0] == 0
    (run,) = fake.runs.values()
    check_summary(run.summary, run.history[best - 1], run.history[7])
    pooled = run.summary["tiny/sinusoidal/any_setting/test_accuracy"]
    assert pooled == record["test"]["accuracy"]
    assert run.summary["val/accuracy"] == record["validation"]["accuracy"]
    assert run.summary["val/loss"] != run.summary["last/val/loss"]
    assert not any(key.startswith("diagnostics/") for key in run.summary)
    assert run.summary["last/diagnostics/gate_mean"] == run.history[7]["diagnostics/gate_mean"]


def test_a_loss_that_is_not_a_number_is_no_difference(fake, sweep):
    (sweep / "seed=0" / seals.SUMS).unlink()
    path = sweep / "seed=0" / records.HISTORY
    history = pd.read_csv(path, float_precision="round_trip")
    history.loc[history.index[-1], "train_loss"] = float("nan")
    history.to_csv(path, index=False, na_rep="nan")
    for _ in range(2):
        assert synced(sweep)[::2] == (0, [])
    (run,) = fake.runs.values()
    run.summary["last/train/loss"] = 0.5
    runs, _ = upload.read(sweep, "")
    assert upload.lacking(runs)[0][1] == "the summary on the server differs (last/train/loss)"


@pytest.mark.slow
@pytest.mark.parametrize("n_rows", [2, len(ALL_STEPS)])  # after a killed run, after a whole one
def test_a_run_that_was_trained_again_does_not_get_the_curves_of_the_first_training(
    fake, sweep, n_rows
):
    """Its id is the same, and W&B cannot change rows. On another machine the numbers differ."""
    folder = sweep / "seed=0"
    assert synced(sweep)[0] == 0
    ((name, there),) = fake.runs.items()
    del there.history[n_rows:]
    held = copy.deepcopy(vars(there))
    history = pd.read_csv(folder / records.HISTORY)
    history["val_loss"] *= 1.01
    history.to_csv(folder / records.HISTORY, index=False)
    record = records.read_result(folder / records.RESULT)
    records.write_result(folder, record | {"started": records.now()})
    for _ in range(2):
        status, out, (line,) = synced(sweep)
        assert (status, out) == (1, f"{fake.url} holds 0 of 1 runs\n")
        assert line.startswith(f"error: {folder}: the server has the curves of another training")
        assert "; upload the sweep under new ids with a new suffix, such as --suffix=2" in line
        assert vars(there) == held
    assert synced(sweep, "--suffix=2")[0] == 0
    losses = [row["val/loss"] for row in fake.runs[f"{name}-2"].history[:-1]]
    assert losses == pytest.approx(history["val_loss"].tolist())


@pytest.mark.parametrize("file", ["weights", "half of the predictions", "a class without a name"])
def test_a_damaged_file_is_named(file, fake, sweep, capsys):
    """Digests would name damaged predictions before the upload begins."""
    folder = sweep / "seed=0"
    if file == "weights":
        cfg = configs.read_config(folder)
        cfg.logger.artifacts = ["model"]
        configs.write_config(folder, cfg)
        path, reason = folder / records.BEST, "cannot be uploaded (differs from its digest in SHA"
    else:
        (folder / seals.SUMS).unlink()
        path, reason = folder / records.PREDICTIONS, "not usable ("
    if file == "a class without a name":
        pd.read_parquet(path).assign(predicted=99).to_parquet(path)
    else:
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    status, _, (line,) = synced(sweep)
    assert status == 1
    assert line.startswith(f"error: {path}: {reason}")
    assert line.endswith(f"); {records.RUN_AGAIN}")
    assert "Traceback" not in capsys.readouterr().err


def test_runs_that_cannot_be_used_are_named_and_the_others_uploaded(fake, sweep):
    result, history, refused, copy = (
        shutil.copytree(sweep / "seed=0", sweep / f"seed={seed}") for seed in (1, 2, 3, 4)
    )
    damaged = [result / records.RESULT, history / records.HISTORY]
    for path in damaged:
        path.write_bytes(path.read_bytes()[:-9])
    write_failure(refused, Conflict.kind, "other")
    begun, pretrained = sweep / "seed=5", sweep / ".cache" / "pretrained" / "id"  # no finished runs
    for folder, name in ((begun, "config.yaml"), (pretrained, records.RESULT)):
        folder.mkdir(parents=True)
        (folder / name).write_text("{}")
    status, out, lines = synced(sweep)
    assert (status, out) == (
        1,
        f"{fake.url} holds 1 of 5 runs\nskipped 1 unfinished runs, the first in {begun}\n"
        f"results: {fake.url}/{ENTITY}/posfuse\n",
    )
    for path, line in zip(damaged, lines[:2], strict=True):
        assert line.startswith(f"error: {path}: ")
    assert lines[2:] == [
        f"error: {refused}: this result is not used, because the last command asked for another "
        "run here: other; or remove failure.json there to use this result",
        f"error: {copy}: second record of the run in {sweep}/seed=0, left out; remove one of the "
        "two",
    ]
    assert len(fake.runs) == 1


def test_one_line_names_what_is_missing(fake, tmp_path):
    line = f"error: {tmp_path}: no finished runs; run posfuse train -m first"
    assert synced(tmp_path) == (1, "", [line])
    assert fake.asked == []


@pytest.mark.parametrize(
    ("variable", "value", "reason"),
    [
        ("WANDB_BASE_URL", "nowhere", "base_url: Input should be a valid URL"),
        ("WANDB_PROJECT", "a/b", "Invalid project name 'a/b'"),
    ],
)
def test_settings_that_wandb_refuses_are_one_line(
    variable, value, reason, fake, sweep, monkeypatch
):
    monkeypatch.setenv(variable, value)
    with restarted():
        (line,) = synced(sweep)[2]
    assert line.startswith(f"error: W&B: {reason}")
    assert line.endswith("; fix or unset that WANDB_ variable")
    assert "pydantic" not in line
