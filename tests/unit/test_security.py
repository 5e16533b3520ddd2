"""The sentences of docs/security.md about files that run no code, each with a hostile file.

The bounds of its list are in test_untrusted.py and test_run_paths.py, its escaping in
test_report.py, and an export with a hostile header in test_export.py.
"""

import os
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf

from posfuse import untrusted
from posfuse.data import pretrained_folder, vocabulary
from posfuse.data.pretrained_folder import read_tokenizer
from posfuse.data.token_store import open_store
from posfuse.runs import configs
from posfuse.runs.folders import AXES
from posfuse.runs.multirun import read_multirun
from posfuse.sweeps.status import runs_of
from posfuse.training import hosts
from posfuse.training.checkpoints import read_checkpoint
from refusals import refusal
from small_runs import small_config, write_corpus


class Hostile:
    """Unpickling it makes a folder."""

    def __init__(self, folder):
        self.folder = str(folder)

    def __reduce__(self):
        return os.mkdir, (self.folder,)


@pytest.mark.parametrize(("reader", "digits"), [("read_json", 20), ("read_yaml", 99)])
def test_the_bounds_are_where_the_page_says(reader, digits, tmp_path):
    deepest = "[" * untrusted.DEEPEST + "]" * untrusted.DEEPEST
    for text in (deepest, "9" * digits):
        (tmp_path / "a").write_text(text)
        getattr(untrusted, reader)(tmp_path / "a")
    for text in (f"[{deepest}]", "9" * (digits + 1)):
        (tmp_path / "a").write_text(text)
        with pytest.raises(ValueError, match=r"deep|too large"):
            getattr(untrusted, reader)(tmp_path / "a")


def test_a_checkpoint_runs_no_code(tmp_path):
    path, hostile = tmp_path / "best.ckpt", Hostile(tmp_path / "ran")
    torch.save({"state_dict": {}, "hostile": hostile}, path)
    assert refusal(read_checkpoint, path).startswith(f"{path}: cannot be read (")
    path.write_bytes(pickle.dumps(hostile))
    assert refusal(read_checkpoint, path).startswith(f"{path}: cannot be read (")
    assert not (tmp_path / "ran").exists()


def test_token_ids_run_no_code(tmp_path):
    """A damaged store is built again, and one with its checksums is not unpickled either."""
    cfg = small_config(write_corpus(tmp_path / "corpus"))
    store = open_store(cfg.data, cfg.cache_dir)
    ids = store.folder / "train.ids.npy"
    hostile = np.array([Hostile(tmp_path / "ran")], dtype=object)
    np.save(ids, hostile, allow_pickle=True)
    assert open_store(cfg.data, cfg.cache_dir).splits["train"].ids.dtype != object
    assert not (tmp_path / "ran").exists()


def test_a_hostile_multirun_file_runs_no_code_in_the_status_and_the_report(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    target = "{_target_: os.mkdir, path: ran}"
    (tmp_path / "multirun.yaml").write_text(
        f"hydra: {{launcher: {target}, sweeper: {{params: {{}}}}, overrides: {{task: []}}}}\n"
        f"data: {{name: a, corpus: {target}}}\n"
        "encoding: {name: b}\nfusion: {name: c}\nseed: 0\n"
    )
    asked = read_multirun(tmp_path)
    assert (asked.folders, asked.primary) == (["a/b/c/seed=0"], ())
    assert [status.state for status in runs_of(tmp_path)] == ["missing"]
    assert not Path("ran").exists()


@pytest.mark.parametrize("value", ["${oc.env:SECRET}", "${b}"])
@pytest.mark.parametrize(
    "key", ["hydra", "hydra.sweeper.params", "hydra.overrides.task", "data", "data.name", "seed"]
)
def test_a_hostile_multirun_file_shows_no_environment_variable(key, value, tmp_path, monkeypatch):
    monkeypatch.setenv("SECRET", "7")
    shown = ["fusion.name=" + value]
    hydra = {"sweeper": {"arms": {"a": shown}}, "overrides": {"task": ["arm=a"]}}
    content = OmegaConf.create({"hydra": hydra, "seed": 0, "sweep": {"primary": [value]}})
    content.update({"b": "${oc.env:SECRET}", **{axis: {"name": axis} for axis in AXES}})
    OmegaConf.save(content, tmp_path / "multirun.yaml")
    asked = read_multirun(tmp_path)
    assert (asked.overrides, asked.primary) == ([shown], ())  # no name of an operator
    assert asked.folders == [f"data/encoding/{value}/seed=0"]
    OmegaConf.update(content, key, value, merge=False)
    OmegaConf.save(content, tmp_path / "multirun.yaml")
    assert "7" not in refusal(read_multirun, tmp_path).removeprefix(str(tmp_path))


@pytest.mark.parametrize(
    ("values", "task", "problem"),
    [
        ("seed: x", "", ""),
        ("seed: null", "", ""),
        ("", "", ""),
        ("seed: 0\ndata: [1]", "", ""),
        ("seed: 0\nsweep: [1]", "", ""),
        ("seed: 0\nsweep: {primary: 7}", "", ""),
        ("seed: 0", "seed=range(0,1000000000)", "more than 100,000 runs"),
        ("seed: 0", "a=range(0,1e9)", "more than 100,000 runs"),
        ("seed: 0", "a=shuffle(range(0,1000000000))", "more than 100,000 runs"),
        ("seed: 0", "a=range(0,1000) b=range(0,1000)", "more than 100,000 runs"),
    ],
)
def test_a_multirun_file_that_is_no_sweeps_is_one_line(tmp_path, values, task, problem):
    hydra = f"hydra: {{sweeper: {{params: {{}}}}, overrides: {{task: {task.split()}}}}}"
    (tmp_path / "multirun.yaml").write_text(f"{hydra}\n{values}\n")
    error = refusal(read_multirun, tmp_path)
    assert error.startswith(f"{tmp_path}/multirun.yaml: not a sweep's settings ({problem}")
    assert error.endswith("); remove it, and run the command of the sweep or the study again")


@pytest.mark.parametrize("text", ["", "hydra: 3", "hydra: {sweeper: {params: {seed: abc}}}"])
def test_a_multirun_file_without_usable_params_is_one_line(tmp_path, text):
    (tmp_path / "multirun.yaml").write_text(text)
    assert "multirun.yaml: not a sweep's settings (" in refusal(read_multirun, tmp_path)


def test_a_config_is_read_without_its_code(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    corpus = "{_target_: os.mkdir, path: ran}"
    Path("config.yaml").write_text(f"data: {{name: a, corpus: {corpus}}}\nencoding: {{name: b}}\n")
    assert configs.read_config(tmp_path).data.corpus["_target_"] == "os.mkdir"
    assert not Path("ran").exists()


def test_a_tokenizer_is_text_of_bounded_size(tmp_path, monkeypatch):
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        (tmp_path / name).write_text("{" * 100_000)
    assert "tokenizer.json: not a tokenizer" in refusal(read_tokenizer, str(tmp_path))
    monkeypatch.setattr(vocabulary, "LARGEST_TOKENIZER", 10)
    assert "larger than 10 bytes" in refusal(read_tokenizer, str(tmp_path))


def test_transformers_gets_no_permission_to_run_code():
    source = Path(hosts.__file__).read_text(encoding="utf-8")
    assert '"trust_remote_code": False' in source
    assert '"local_files_only": True' in source
    assert source.count("**local") == source.count("from_pretrained(")


def test_the_page_states_the_limits_of_the_code():
    page = (Path(__file__).parents[2] / "docs" / "security.md").read_text(encoding="utf-8")
    limits = (untrusted.LARGEST_JSON, untrusted.LARGEST_YAML, untrusted.LARGEST_CSV)
    mebibytes = [limit // untrusted.MEBIBYTE for limit in limits]
    assert "JSON has at most {} MiB, YAML {} MiB, CSV {} MiB".format(*mebibytes) in page
    assert untrusted.MOST_ROWS == 2**24
    assert "a Parquet file 2^24 rows" in page
    assert f"has at most {untrusted.LONGEST_TEXT} bytes" in page
    assert f"texts {untrusted.LARGEST_TEXTS // untrusted.MEBIBYTE} MiB before" in page
    assert page.count(f"at most {untrusted.DEEPEST} nested levels") == 2
    assert f"more than {pretrained_folder.MOST_LAYERS} layers" in page
    megabytes = vocabulary.LARGEST_TOKENIZER // untrusted.MEBIBYTE
    assert f"`tokenizer.json` has at most {megabytes} MiB" in page
