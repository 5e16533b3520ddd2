"""The paths in a run's config.yaml: absolute, and used only where the run's files are."""

import os
import re
import shutil

from omegaconf import OmegaConf

from posfuse.runs import configs, identity
from posfuse.runs.checks import checked
from posfuse.runs.folders import run_folder
from posfuse.runs.identity import is_neutral
from refusals import refusal
from small_runs import composed, small_config, write_corpus


def run_in(project, **paths):
    """The folder of a run whose config has these paths, and the settings of its record."""
    write_corpus(project / "mine")
    cfg = small_config(project / "mine", "sweep_id=mine", f"output_dir={project / 'multirun'}")
    recorded = identity.settings(cfg)
    folder = project / "multirun" / "mine" / "mine" / "sinusoidal" / "add" / "seed=0"
    folder.mkdir(parents=True)
    cfg.data.path = paths.pop("data", cfg.data.path)
    for key, path in paths.items():
        setattr(cfg, key, path)
    return cfg, folder, recorded


def test_a_config_is_written_with_absolute_paths(tmp_path, monkeypatch):
    cfg, folder, recorded = run_in(tmp_path, data="mine", cache_dir="ids", output_dir="multirun")
    monkeypatch.chdir(tmp_path)
    configs.write_config(folder, cfg)
    written = OmegaConf.load(folder / "config.yaml")
    paths = [written.data.path, written.cache_dir, written.output_dir]
    assert paths == [str(tmp_path / name) for name in ("mine", "ids", "multirun")]
    assert written.host.path is None
    assert cfg.data.path == "mine"  # the run's own config is unchanged
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    read = configs.with_folders(configs.read_config(folder), folder, recorded)
    assert identity.settings(read) == recorded
    assert is_neutral("cache_dir")
    assert is_neutral("output_dir")


def test_a_project_may_be_moved(tmp_path):
    cfg, folder, recorded = run_in(tmp_path / "old")
    (tmp_path / "old" / "ids").mkdir()
    cfg.cache_dir = str(tmp_path / "old" / "ids")
    configs.write_config(folder, cfg)
    (tmp_path / "old").rename(tmp_path / "new")
    folder = tmp_path / "new" / folder.relative_to(tmp_path / "old")
    read = configs.with_folders(configs.read_config(folder), folder, recorded)
    assert read.data.path == str(tmp_path / "new" / "mine")
    assert read.cache_dir == str(tmp_path / "new" / "ids")
    shutil.rmtree(tmp_path / "new" / "ids")
    assert configs.read_config(folder).cache_dir == str(tmp_path / "new" / "ids")


def test_a_folder_that_this_user_may_not_see_counts_as_absent(tmp_path, monkeypatch):
    cfg, folder, recorded = run_in(tmp_path, cache_dir="/private/ids")
    configs.write_config(folder, cfg)
    stat = os.stat

    def refusing(path, *more, **options):
        if str(path).startswith("/private"):
            raise PermissionError(13, "Permission denied", path)
        return stat(path, *more, **options)

    monkeypatch.setattr(os, "stat", refusing)
    read = configs.with_folders(configs.read_config(folder), folder, recorded)
    assert identity.settings(read) == recorded


def test_a_folder_in_the_hubs_form_is_known_by_its_files(tmp_path, monkeypatch):
    write_corpus(tmp_path / "old" / "texts")
    folder = tmp_path / "old" / "multirun" / "mine" / "tiny" / "sinusoidal" / "add" / "seed=0"
    folder.mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "old")
    cfg = checked(composed("data=agnews", "sweep_id=mine", "data.corpus.id=texts"))
    recorded = identity.settings(cfg)
    configs.write_config(folder, cfg)
    (tmp_path / "old").rename(tmp_path / "new")
    folder = tmp_path / "new" / folder.relative_to(tmp_path / "old")
    read = configs.with_folders(configs.read_config(folder), folder, recorded)
    assert read.data.corpus["id"] == str(tmp_path / "new" / "texts")
    assert identity.settings(read) == recorded
    (tmp_path / "new" / "texts" / "README.md").touch()
    assert identity.differing(identity.settings(read), recorded) == ["data.corpus.id"]


def test_a_repository_of_the_hub_is_known_by_its_name(tmp_path):
    cfg = checked(composed("data=agnews", "data.corpus.id=texts/mine"))
    assert identity.settings(cfg)["data.corpus.id"] == "texts/mine"
    configs.write_config(tmp_path, cfg)
    assert configs.read_config(tmp_path).data.corpus["id"] == "texts/mine"
    own = [f"data.corpus.id={owner}/mine" for owner in ("texts", "others")]
    assert len({run_folder("d", "e", "f", 0, [override]) for override in own}) == 2


def test_texts_that_are_gone_or_changed_are_one_line(tmp_path):
    cfg, folder, recorded = run_in(tmp_path)
    configs.write_config(folder, cfg)
    read = configs.read_config(folder)
    write_corpus(tmp_path / "mine", seed=1)
    for digests in (recorded, {}):  # {}: a record without the digest
        line = refusal(configs.with_folders, read, folder, digests)
        start = f"{tmp_path / 'mine'}: its files are not those of the run {folder}; restore"
        assert line.startswith(start)
    shutil.rmtree(tmp_path / "mine")
    line = refusal(configs.with_folders, read, folder, recorded)
    assert re.search(r"config\.yaml: data\.path: no folder .*new place", line)


def test_a_pretrained_model_is_known_by_its_digest_too(tmp_path):
    cfg, folder, recorded = run_in(tmp_path)
    (tmp_path / "host").mkdir()
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        (tmp_path / "host" / name).write_text(name)
    cfg.host.path = str(tmp_path / "host")
    recorded = identity.settings(cfg)
    configs.write_config(folder, cfg)
    read = configs.read_config(folder)
    assert configs.with_folders(read, folder, recorded).host.path == str(tmp_path / "host")
    (tmp_path / "host" / "config.json").write_text("{}")
    line = refusal(configs.with_folders, read, folder, recorded)
    assert "host: its files are not those of the run" in line
