"""What W&B shows of a run, without W&B."""

import os

import pytest

from posfuse.runs.multirun import read_multirun
from posfuse.tracking import server
from posfuse.tracking.projection import Cell, config, display_name, rows, run_id, short_name
from posfuse.tracking.server import prepare
from small_records import ask


def identity(**more):
    cell = {"data": "tiny", "encoding": "learned", "fusion": "add", "seed": 5, "sweep_id": "mine"}
    cell |= {"settings": {"seed": 5, "model.d_model": 8}, "task": {"metric": "accuracy"}}
    return {"fingerprint": "f" * 16, "variant": "a=1", **cell, **more}


def test_an_id_names_the_run_its_place_and_the_code_of_an_own_operator():
    changes = [{}, {"sweep_id": "other"}, {"variant": ""}, {"fingerprint": "0" * 16}]
    changes += [{"code": "a" * 16}, {"code": "b" * 16}]
    ids = [run_id(identity(**own)) for own in changes]
    assert len(set(ids)) == len(changes)
    assert run_id(identity(seed=6)) == ids[0]  # the fingerprint includes the seed
    assert run_id(identity(), "2") == f"{ids[0]}-2"


def test_a_name_shows_what_varies_in_the_sweep(tmp_path):
    """Without a sweep it shows all."""
    own = identity(fusion="gate_scalar", variant="data.limit=9__model.token_scale=1")
    folder = tmp_path / "tiny" / "learned" / "gate_scalar" / own["variant"] / "seed=5"
    assert display_name(own, folder) == "tiny learned gate_scalar limit=9 token_scale=1 s5"
    tasks = ["data=tiny", "encoding=learned", "fusion=gate_scalar", "data.limit=9", "seed=5"]
    ask(tmp_path, None, [*tasks, "model.token_scale=1,2"])
    assert display_name(own, folder) == "gate_scalar token_scale=1 s5"
    # The folder's name is too long to contain the values that vary.
    tasks += [f"data.splits.{name}=a_long_name_of_a_split" for name in ("train", "test")]
    ask(tmp_path, None, [*tasks, "model.token_scale=1,2"])
    for folder_of_run, scale in zip(read_multirun(tmp_path).folders, (1, 2), strict=True):
        assert "token_scale" not in folder_of_run
        cut = identity(fusion="gate_scalar", variant=folder_of_run.split("/")[-2])
        assert display_name(cut, tmp_path / folder_of_run) == f"gate_scalar token_scale={scale} s5"


@pytest.mark.parametrize("n_trials", [None, 4])
def test_the_values_of_a_trial_are_in_its_name(n_trials, tmp_path):
    """Also if it is the only trial so far: of a search, or of a study with tuning.method=tpe."""
    search = {} if n_trials is None else {"n_trials": n_trials}
    arms = {"t00": ["fusion=add", "optim.lr=0.01"]}
    ask(tmp_path, {"arm": "t00"}, ["data=tiny", "encoding=learned", "seed=5"], arms=arms, **search)
    folder = tmp_path / "tiny" / "learned" / "add" / "optim.lr=0.01" / "seed=5"
    assert display_name(identity(variant="optim.lr=0.01"), folder) == "add lr=0.01 s5"
    other = identity(fusion="gate_scalar", variant="model.token_scale=3")
    assert display_name(other, folder.with_name("seed=6")) == (
        "tiny learned gate_scalar token_scale=3 s5"
    )


def test_long_names_are_shortened_and_stay_different():
    names = {short_name("a" * n, 64) for n in (64, 65, 66)}
    assert [len(name) for name in names] == [64] * 3
    assert "a" * 64 in names


def test_the_config_holds_settings_and_labels():
    found = config(identity())
    assert found["model.d_model"] == 8
    assert found["variant"] == "a:1"  # wandb-workspaces cannot filter by a value with "="
    assert found["data"] == "tiny"


def test_a_score_has_a_name_of_its_own_in_each_cell():
    cell = Cell.of(identity(variant="model.token_scale=1__seeds=init"))
    scores = {"loss": 2.0, "accuracy": 0.5}
    name = "tiny/learned/model_token_scale_1__seeds_init/val_accuracy"
    assert cell.score("val", scores) == {name: 0.5}
    cell_of_bytes = Cell("a.b", "rope", "", "bits_per_byte")
    assert cell_of_bytes.score("test", {"bits_per_byte": 3.0, "accuracy": 0.1}) == {
        "a_b/rope/test_bits_per_byte": 3.0
    }
    assert cell.score("val", {"loss": 2.0}) == {}
    (row,) = rows(cell, [{"epoch": 1, "step": 4, "val_accuracy": 0.25}], [])
    assert row[name] == 0.25
    assert cell.setting == "learned model.token_scale=1 seeds=init"


@pytest.fixture
def unset(monkeypatch):
    """The variables that `prepare` sets are unset. They are restored after the test."""
    monkeypatch.setattr(server, "_set", {})
    for name in (*server.PLACES, "WANDB_SILENT", "WANDB_ERROR_REPORTING"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)


def test_variables_with_what_posfuse_sets_are_ignored_with_one_warning(
    unset, tmp_path, monkeypatch, caplog
):
    for name in ("WANDB_NAME", "WANDB_RUN_GROUP", "WANDB_JOB_TYPE", "WANDB_TAGS"):
        monkeypatch.setenv(name, "mine")
    for _ in range(2):
        prepare(tmp_path, of_agent=True)
    (line,) = caplog.messages
    assert line.startswith("WANDB_NAME, WANDB_RUN_GROUP, WANDB_JOB_TYPE, WANDB_TAGS: ignored; ")
    assert line.endswith("use logger.job_type and logger.tags")


def test_each_sweep_of_a_process_has_its_files_and_the_users_settings_stay(
    unset, tmp_path, monkeypatch
):
    monkeypatch.setenv("WANDB_CACHE_DIR", "mine")
    monkeypatch.setenv("WANDB_MODE", "")
    for sweep in ("one", "other"):
        prepare(tmp_path / sweep)
        assert os.environ["WANDB_DATA_DIR"] == str(tmp_path / sweep / ".wandb")
        assert os.environ["WANDB_CACHE_DIR"] == "mine"
    assert "WANDB_MODE" not in os.environ  # W&B refuses an empty value
    assert "WANDB_CONFIG_DIR" not in os.environ  # the server's address is there
