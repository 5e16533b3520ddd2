"""posfuse sync: the server holds each finished run once; what it lacks, and what cannot be
uploaded, is named."""

import copy
import shutil

import pandas as pd
import pytest

from fake_wandb import ENTITY
from posfuse import seals
from posfuse.errors import Conflict
from posfuse.runs import configs, identity, records
from posfuse.tracking import projection, upload
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


@pytest.mark.slow
def test_runs_without_a_project_go_to_that_of_the_environment(fake, sweep, monkeypatch):
    monkeypatch.setenv("WANDB_PROJECT", "of_shell")
    for _ in range(2):
        status, out, _ = synced(sweep)
        assert (status, out.splitlines()[1]) == (0, f"results: {fake.url}/{ENTITY}/of_shell")
    (run,) = fake.runs.values()
    assert run.project == "of_shell"


def test_a_run_is_uploaded_once_and_what_the_server_lacks_is_named(fake, sweep):
    folder = sweep / "seed=0"
    cfg = configs.read_config(folder)
    cfg.logger.artifacts = ["result", "predictions", "model"]
    configs.write_config(folder, cfg)
    held = f"{fake.url} holds 1 of 1 runs\nresults: {fake.url}/{ENTITY}/posfuse\n"
    held += f"next: posfuse dashboard {sweep}\n"
    assert synced(sweep) == (0, held, [])
    uploads, _ = upload.read(sweep, "")
    ((name, run),) = fake.runs.items()
    check_held(fake, uploads[0], name)
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
            ((_, reason),) = upload.lacking(uploads)
        return reason

    assert lacks("history", []) == f"the server's last step is -1, not {ALL_STEPS[-1]}"
    assert lacks("artifacts", []) == f"the server has no artifact result-{name}"
    others = [artifact for artifact in run.artifacts if artifact["type"] != "model"]
    assert lacks("artifacts", others) == f"the server has no artifact model-{name}"
    for part, key, changed in (
        ("config", "fusion", run.config | {"fusion": {"value": "another"}}),
        ("summary", "best_epoch", run.summary | {"best_epoch": -1}),
    ):
        assert lacks(part, changed) == f"the {part} on the server differs ({key})"
    others, _ = upload.read(sweep, "2")
    assert upload.lacking(others) == [(others[0], f"not on the server under the id {name}-2")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "project", "another")
        assert upload.on_server(uploads) == {}


@pytest.mark.slow
def test_what_did_not_arrive_is_named_and_the_next_sync_completes_it(fake, sweep):
    run = Finished.read(sweep / "seed=0")
    name = projection.run_id(run.record)
    fake.lose = {name}
    status, out, (line,) = synced(sweep)
    assert (status, out) == (1, f"{fake.url} holds 0 of 1 runs\n")
    message = f"the server's last step is -1, not {ALL_STEPS[-1]}; retry, or "
    assert line.startswith(f"error: {run.folder}: {message}")
    fake.lose = set()
    assert synced(sweep)[0] == 0
    check_held(fake, run, name)
    there = fake.runs[name]  # as after an online run that was killed
    del there.history[2:]
    there.summary, there.config["fusion"]["value"] = {"_step": 8}, "another"
    there.artifacts.clear()
    assert synced(sweep)[0] == 0
    check_held(fake, run, name)
    del there.summary["test/accuracy"]
    assert synced(sweep)[0] == 0
    check_held(fake, run, name)


@pytest.mark.slow
def test_a_deleted_run_is_uploaded_under_a_new_id(fake, sweep):
    name = projection.run_id(Finished.read(sweep / "seed=0").record)
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
    uploads, _ = upload.read(sweep, "")
    assert upload.lacking(uploads)[0][1] == "the summary on the server differs (last/train/loss)"


def test_a_damaged_record_is_named_and_the_other_runs_are_uploaded(fake, sweep):
    damaged = []
    for seed, name in enumerate((records.RESULT, records.HISTORY), 1):
        run = shutil.copytree(sweep / "seed=0", sweep / f"seed={seed}")
        damaged.append(run / name)
        damaged[-1].write_bytes(damaged[-1].read_bytes()[:-9])
    begun = sweep / "seed=3"
    begun.mkdir()
    (begun / "config.yaml").touch()
    status, out, lines = synced(sweep)
    assert status == 1
    assert out == (
        f"{fake.url} holds 1 of 3 runs\nskipped 1 unfinished runs, the first in {begun}\n"
        f"results: {fake.url}/{ENTITY}/posfuse\n"
    )
    for path, line in zip(damaged, lines, strict=True):
        assert line.startswith(f"error: {path}: ")
    assert len(fake.runs) == 1


@pytest.mark.slow
def test_a_record_without_its_place_is_named_and_one_of_pretraining_is_no_run(fake, sweep):
    for seed, key, value in ((1, "data", "../up"), (2, "seed", None)):
        other = shutil.copytree(sweep / "seed=0", sweep / f"seed={seed}")
        record = records.read_result(other / records.RESULT)
        records.write_result(other, record | {key: value})
    pretrained = sweep / ".cache" / "pretrained" / "id"
    pretrained.mkdir(parents=True)
    (pretrained / records.RESULT).write_text("{}")
    status, out, lines = synced(sweep)
    assert (status, out.splitlines()[0]) == (1, f"{fake.url} holds 1 of 3 runs")
    start = f"error: {sweep}/seed="
    assert lines[0].startswith(f"{start}1/result.json: data is '../up', not a name of letters")
    assert lines[1].startswith(f"{start}2/result.json: not a readable record (no seed); remove")


def test_a_damaged_artifact_is_not_uploaded(fake, sweep):
    cfg = configs.read_config(sweep / "seed=0")
    cfg.logger.artifacts = ["model"]
    configs.write_config(sweep / "seed=0", cfg)
    path = sweep / "seed=0" / records.BEST
    path.write_bytes(path.read_bytes()[:-9])
    status, _, (line,) = synced(sweep)
    assert status == 1
    reason = "differs from its digest in SHA256SUMS"
    assert line == f"error: {path}: cannot be uploaded ({reason}); {records.RUN_AGAIN}"


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


@pytest.mark.parametrize("damage", ["half a file", "a class without a name"])
def test_damaged_predictions_of_a_run_without_digests_are_named(fake, sweep, damage):
    """Digests would name them before the upload begins."""
    (sweep / "seed=0" / seals.SUMS).unlink()
    path = sweep / "seed=0" / records.PREDICTIONS
    if damage == "half a file":
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    else:
        pd.read_parquet(path).assign(predicted=99).to_parquet(path)
    status, _, (line,) = synced(sweep)
    assert status == 1
    assert line.startswith(f"error: {path}: not usable (")
    assert line.endswith(f"); {records.RUN_AGAIN}")


def test_a_run_is_uploaded_once_and_never_one_that_was_not_asked_for(fake, sweep):
    refused = shutil.copytree(sweep / "seed=0", sweep / "seed=1")
    write_failure(refused, Conflict.kind, "other")
    copy = shutil.copytree(sweep / "seed=0", sweep / "seed=2")
    assert synced(sweep) == (
        1,
        f"{fake.url} holds 1 of 3 runs\nresults: {fake.url}/{ENTITY}/posfuse\n",
        [
            f"error: {refused}: this result is not used, because the last command asked for "
            "another run here: other",
            f"error: {copy}: second record of the run in {sweep}/seed=0, left out; remove "
            "one of the two",
        ],
    )


@pytest.mark.slow
def test_a_copy_of_a_sweep_in_its_folder_is_no_reason_to_leave_out_a_run(fake, sweep):
    copy = shutil.copytree(sweep, sweep.parent / "copy")
    copy = copy.rename(sweep / "a_copy")
    _, _, (line,) = synced(sweep)
    assert line.startswith(f"error: {copy / 'seed=0'}: second record of the run in {sweep}/seed=0")


def test_a_cell_with_two_configurations_is_left_out(fake, sweep):
    other = shutil.copytree(sweep / "seed=0", sweep / "seed=1")
    record = records.read_result(other / records.RESULT)
    settings = record["settings"] | {"seed": 4, "optim.lr": 0.05}
    own = {"settings": settings, "fingerprint": identity.fingerprint_of(settings)}
    records.write_result(other, record | own)
    status, out, (line,) = synced(sweep)
    assert (status, out) == (1, f"{fake.url} holds 0 of 2 runs\n")
    places = f"{sweep / 'seed=0'} and {other}"
    assert line.startswith(
        f"error: {places}: one cell with two configurations (optim.lr 0.01, 0.05)"
    )


@pytest.mark.slow
def test_a_run_of_an_earlier_version_is_left_out_beside_one_of_this_version(fake, sweep):
    other = shutil.copytree(sweep / "seed=0", sweep / "seed=1")
    record = records.read_result(other / records.RESULT)
    records.write_result(other, record | {"fingerprint": "earlier"})
    status, out, (line,) = synced(sweep)
    assert (status, out.splitlines()[0]) == (1, f"{fake.url} holds 1 of 2 runs")
    assert line.startswith(f"error: {other}: made by an earlier version of posfuse")


def test_one_line_names_what_is_missing(fake, tmp_path):
    absent = tmp_path / "absent"
    line = f"error: {absent}: no such folder; give a sweep's folder, such as multirun/mine"
    assert synced(absent) == (1, "", [line])
    line = f"error: {tmp_path}: no finished runs; run posfuse train -m first"
    assert synced(tmp_path) == (1, "", [line])
    assert fake.asked == []


def test_settings_that_wandb_refuses_are_one_line(fake, sweep, monkeypatch):
    monkeypatch.setenv("WANDB_BASE_URL", "nowhere")
    with restarted():
        (line,) = synced(sweep)[2]
    assert line.startswith("error: W&B: base_url: Input should be a valid URL")
    assert "pydantic" not in line
