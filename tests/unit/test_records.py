"""Records: written atomically, recognised by their fingerprint, never overwritten."""

import json
import os
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from posfuse.config import Config
from posfuse.data.corpora import load
from posfuse.data.token_store import store_key
from posfuse.runs import identity, records
from posfuse.runs.folders import results_in, started_in
from posfuse.runs.multirun import sweeps_at
from posfuse.runs.records import failures_in
from posfuse.sweeps.status import runs_of
from refusals import refusal
from small_records import ask, write_failure, write_record
from small_runs import small_config, write_corpus


@pytest.fixture(scope="module")
def cfg(tmp_path_factory):
    return small_config(write_corpus(tmp_path_factory.mktemp("records") / "corpus"))


def write(folder, cfg, **changes) -> None:
    record = {**records.identity(cfg, folder), "test": {"accuracy": 0.5}, "task": {}, **changes}
    records.write_json(folder / "result.json", record)
    (folder / "predictions.parquet").touch()


def test_a_run_is_done_when_its_record_matches(cfg, tmp_path) -> None:
    assert records.finished_record(tmp_path, cfg) is None
    write(tmp_path, cfg)
    assert records.finished_record(tmp_path, cfg)["test"] == {"accuracy": 0.5}
    (tmp_path / "predictions.parquet").unlink()
    assert records.finished_record(tmp_path, cfg) is None


def test_a_test_run_of_a_study_names_its_plan(cfg, tmp_path) -> None:
    own = replace(cfg, sweep=replace(cfg.sweep, plan="d" * 64))
    assert records.identity(own, tmp_path)["plan"] == "d" * 64
    assert "plan" not in records.identity(cfg, tmp_path)
    assert identity.fingerprint(own) == identity.fingerprint(cfg)
    assert identity.fingerprint(cfg) == identity.fingerprint_of(identity.settings(cfg))


def test_own_code_is_that_of_a_class_its_bases_or_the_module_that_names_it(own_module):
    first = own_module("own_first", "from torch import nn\nclass First(nn.Module): ...\n")
    code = "from functools import partial\nfrom own_first import First\n"
    code += "class Second(First): ...\nbound = partial(Second)\n"
    second = own_module("own_second", code)
    for target, files in (
        ("own_second.Second", {first, second}),
        ("own_second.bound", {second}),
        ("math.sqrt", set()),
        ("posfuse.model.fusion.Add", set()),
    ):
        assert set(identity.own_files(Config(fusion={"_target_": target}))) == files
    own = Config(fusion={"_target_": "own_second.Second"})
    before = identity.own_code(own)
    with first.open("a") as file:
        file.write("# changed\n")
    assert identity.own_code(own) == before  # the loaded code is the same
    del sys.modules["own_first"], sys.modules["own_second"]  # as in another process
    assert identity.own_code(own) != before


def test_a_corpus_of_ones_own_is_known_by_its_code_and_its_files(tmp_path, own_module):
    corpus = write_corpus(tmp_path / "texts")
    text = f"from posfuse.data.corpora import folder\ndef mine(): return folder({str(corpus)!r})"
    code = own_module("own_corpus", text)
    cfg = small_config(corpus)
    cfg.data.path, cfg.data.corpus = None, {"_target_": "own_corpus.mine"}

    def state():
        return store_key(cfg.data, load(cfg.data)), identity.own_code(cfg)["code"]

    states = [state()]
    with code.open("a") as file:
        file.write("\n# changed")
    assert state() == states[0]  # the loaded code is the same
    del sys.modules["own_corpus"]  # as in another process
    states.append(state())
    write_corpus(corpus, seed=1)
    states.append(state())
    assert all(len(set(each)) == 3 for each in zip(*states, strict=True)), states


def test_seeds_of_an_own_corpus_have_one_code_although_the_split_seed_is_theirs(
    tmp_path, monkeypatch, own_module
):
    """The function gets a number, and its fingerprint may contain it."""
    text = "from posfuse.data.corpora import Corpus\ntopic = 'a'\n"
    text += "def mine(split_seed): return Corpus(f'{topic} {split_seed + 0}', dict)\n"
    own_module("own_split", text)
    corpus = write_corpus(tmp_path / "texts")
    codes = []
    for topic, seed in (("a", 3), ("a", 4), ("b", 3)):
        monkeypatch.setattr("own_split.topic", topic)
        cfg = small_config(corpus, f"seed={seed}", "data.split_seed=seed")
        cfg.data.path = None
        cfg.data.corpus = {"_target_": "own_split.mine", "split_seed": "seed"}
        codes.append(identity.own_code(cfg)["code"])
    assert codes[0] == codes[1] != codes[2]


def test_settings_differ_in_keys_that_either_lacks() -> None:
    one, other = {"a": 1, "b": None, "c": 2}, {"a": 1, "c": 3, "d": 4}
    assert identity.differing(one, other) == identity.differing(other, one) == ["b", "c", "d"]


def test_another_configurations_record_is_refused_and_kept(cfg, tmp_path) -> None:
    for key, message in (
        ("optim.lr", r"another configuration's result \(optim\.lr 9 -> 0\.01\); set sweep_id=NAME"),
        ("data.path", "the result of other texts that are also named 'tiny'; set data.name=NAME"),
    ):
        settings = {**identity.settings(cfg), key: 9}
        write(tmp_path, cfg, fingerprint="another", settings=settings)
        before = (tmp_path / "result.json").read_text()
        line = refusal(records.finished_record, tmp_path, cfg)
        assert re.search(rf"result\.json: has {message}.*, or remove this file to run again", line)
        assert (tmp_path / "result.json").read_text() == before


def test_a_record_that_does_not_identify_its_run_is_named(cfg, tmp_path) -> None:
    for key, value, message in (
        ("schema", 0, f"has schema 0, but this version reads {records.SCHEMA}"),
        ("fingerprint", None, "no fingerprint"),
    ):
        write(tmp_path, cfg, **{key: value})
        assert message in refusal(records.finished_record, tmp_path, cfg)


def test_a_write_that_fails_or_is_killed_before_the_rename_leaves_the_old_file(
    tmp_path, monkeypatch
) -> None:
    def killed(*_):
        raise KeyboardInterrupt

    path = tmp_path / "result.json"
    records.write_json(path, {"a": 1})
    with pytest.raises(ValueError):
        records.write_json(path, {"a": float("nan")})
    with monkeypatch.context() as patch:
        patch.setattr(records.os, "replace", killed)
        with pytest.raises(KeyboardInterrupt):
            records.write_json(path, {"a": 2})
    assert json.loads(path.read_text()) == {"a": 1}
    records.write_json(path, {"a": 3})
    assert [p.name for p in tmp_path.iterdir()] == ["result.json"]


@pytest.mark.parametrize("read", [runs_of, started_in, results_in, failures_in, sweeps_at])
def test_folders_that_are_removed_while_a_sweep_is_read_are_ignored(read, tmp_path, monkeypatch):
    """W&B's earlier log of a resumed run is one, the folder of posfuse sync another."""
    sweep = tmp_path / "mine"
    run = write_record(sweep, 0.5)
    write_failure(run, "failed", "too large")
    ask(sweep, None, ["seed=0,1"])
    passing, opened, scandir = (
        [sweep / ".wandb" / "tmp", run / "wandb" / "offline-run"],
        [],
        os.scandir,
    )

    def opening(place):
        opened.append(Path(place))
        if opened[-1] in passing:
            opened[-1].rmdir()
        return scandir(place)

    folder = tmp_path if read is sweeps_at else sweep
    before = read(folder)
    for place in passing:
        place.mkdir(parents=True)
    monkeypatch.setattr(os, "scandir", opening)
    assert before
    assert read(folder) == before
    assert set(passing) <= set(opened)
