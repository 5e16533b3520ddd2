"""The paths in a run's config.yaml: absolute, and used only where the run's files are."""

import os
import re
import shutil
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from posfuse.runs import configs, identity
from posfuse.runs.checks import checked
from posfuse.runs.folders import run_folder
from refusals import refusal
from small_runs import composed, small_config, write_corpus


def config_in(project):
    """The config of a run on texts in the project's folder."""
    corpus = write_corpus(project / "mine")
    return small_config(corpus, "sweep_id=mine", f"output_dir={project / 'multirun'}")


def write_in(project, cfg):
    """Write config.yaml of a run in the project's folder; returns the run's folder."""
    folder = project / "multirun" / "mine" / "tiny" / "sinusoidal" / "add" / "seed=0"
    folder.mkdir(parents=True)
    configs.write_config(folder, cfg)
    return folder


def read_in(folder, recorded):
    return configs.with_folders(configs.read_config(folder), folder, recorded)


def test_a_config_is_written_with_absolute_paths(tmp_path, monkeypatch):
    cfg = config_in(tmp_path)
    recorded = identity.settings(cfg)
    cfg.data.path, cfg.cache_dir, cfg.output_dir = names = ["mine", "ids", "multirun"]
    monkeypatch.chdir(tmp_path)
    folder = write_in(tmp_path, cfg)
    written = OmegaConf.load(folder / "config.yaml")
    paths = [written.data.path, written.cache_dir, written.output_dir]
    assert paths == [str(tmp_path / name) for name in names]
    assert written.host.path is None
    assert cfg.data.path == "mine"  # the run's own config is unchanged
    monkeypatch.chdir(folder)
    assert identity.settings(read_in(folder, recorded)) == recorded


@pytest.mark.parametrize("data", ["folder", "agnews"])
def test_a_project_may_be_moved(data, tmp_path, monkeypatch):
    """With data=agnews the texts are a folder in the hub's form."""
    old, new = tmp_path / "old", tmp_path / "new"
    cfg = config_in(old)
    monkeypatch.chdir(old)
    if data == "agnews":
        cfg = checked(composed("data=agnews", "sweep_id=mine", "data.corpus.id=mine"))
    (old / "ids").mkdir()
    cfg.cache_dir = str(old / "ids")
    recorded = identity.settings(cfg)
    folder = new / write_in(old, cfg).relative_to(old)
    old.rename(new)
    read = read_in(folder, recorded)
    assert new / "mine" == Path(read.data.path or read.data.corpus["id"])
    assert read.cache_dir == str(new / "ids")
    assert identity.settings(read) == recorded
    shutil.rmtree(new / "ids")
    assert configs.read_config(folder).cache_dir == str(new / "ids")
    for hidden in (".git/refs/main", ".cache/a/b", "data/.DS_Store"):
        (new / "mine" / hidden).parent.mkdir(parents=True, exist_ok=True)
        (new / "mine" / hidden).touch()
    assert identity.settings(read) == recorded
    (new / "mine" / "README.md").touch()
    differing = identity.differing(identity.settings(read), recorded)
    assert differing == (["data.corpus.id"] if data == "agnews" else [])


def test_a_folder_that_this_user_may_not_see_counts_as_absent(tmp_path, monkeypatch):
    cfg = config_in(tmp_path)
    cfg.cache_dir = "/private/ids"
    folder, recorded, stat = write_in(tmp_path, cfg), identity.settings(cfg), os.stat

    def refusing(path, *more, **options):
        if str(path).startswith("/private"):
            raise PermissionError(13, "Permission denied", path)
        return stat(path, *more, **options)

    monkeypatch.setattr(os, "stat", refusing)
    assert identity.settings(read_in(folder, recorded)) == recorded


def test_a_repository_of_the_hub_is_known_by_its_name(tmp_path):
    cfg = checked(composed("data=agnews", "data.corpus.id=texts/mine"))
    assert identity.settings(cfg)["data.corpus.id"] == "texts/mine"
    read = configs.read_config(write_in(tmp_path, cfg))
    assert read.data.corpus["id"] == "texts/mine"
    own = [f"data.corpus.id={owner}/mine" for owner in ("texts", "others")]
    assert len({run_folder("d", "e", "f", 0, [override]) for override in own}) == 2


def test_texts_that_are_gone_or_changed_are_one_line(tmp_path):
    cfg = config_in(tmp_path)
    folder, recorded = write_in(tmp_path, cfg), identity.settings(cfg)
    write_corpus(tmp_path / "mine", seed=1)
    for digests in (recorded, {}):  # {}: a record without the digest
        line = refusal(read_in, folder, digests)
        start = f"{tmp_path / 'mine'}: its files are not those of the run {folder}; restore"
        assert line.startswith(start)
    shutil.rmtree(tmp_path / "mine")
    line = refusal(read_in, folder, recorded)
    assert re.search(r"config\.yaml: data\.path: no folder .*new place", line)


def test_a_pretrained_model_is_known_by_its_digest_too(tmp_path):
    cfg, host = config_in(tmp_path), tmp_path / "host"
    host.mkdir()
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        (host / name).write_text(name)
    cfg.host.path = str(host)
    folder, recorded = write_in(tmp_path, cfg), identity.settings(cfg)
    assert read_in(folder, recorded).host.path == str(host)
    (host / "config.json").write_text("{}")
    assert "host: its files are not those of the run" in refusal(read_in, folder, recorded)
