"""The folders with config files of the user."""

import pytest

from posfuse.config import CONF_DIR
from posfuse.process.config_folders import check_config_folders, config_folder, split_searchpath
from refusals import refusal


@pytest.fixture
def here(tmp_path, monkeypatch):
    """The current folder, in which the folder `mine` has its own operator."""
    (tmp_path / "mine/fusion").mkdir(parents=True)
    (tmp_path / "mine/fusion/own.yaml").write_text("name: own")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_search_path_on_the_command_line():
    assert split_searchpath(["a=1", "hydra.searchpath=[my_conf,'file:///b c']"]) == (
        ["my_conf", "file:///b c"],
        ["a=1"],
    )
    for wrong in ("my_conf", "[1]", "[a", ""):
        found = refusal(split_searchpath, [f"hydra.searchpath={wrong}"])
        assert "must be a list of folders, such as" in found


@pytest.mark.parametrize(
    "given", ["-cd {}", "-cd={}", "--config-dir {}", "--config-d={}", "hydra.searchpath=[{}]"]
)
def test_a_folder_that_does_not_exist_is_refused(given, here):
    """Hydra only warns about a folder of hydra.searchpath, and trains without its files."""
    key = "hydra.searchpath" if given.startswith("hydra") else "--config-dir"
    wanted = f"{key}: no folder {here}/nope; name another folder"
    assert refusal(check_config_folders, given.format("nope").split()) == wanted
    for folder in ("mine", here / "mine", *(["s3://a/b"] if "[" in given else [])):
        check_config_folders([*given.format(folder).split(), "seed=1"])


def test_other_options_name_no_folder(here):
    check_config_folders(
        ["fusion=own", "--config-name", "nope", "-cd", "mine", "-m", "--cfg", "job"]
    )


def test_a_file_that_hydra_would_ignore_is_refused(here):
    """The user would train posfuse's operator instead of the own one."""
    (here / "mine/study").mkdir()
    (here / "mine/study/demo.yaml").write_text("question: Why?")  # Hydra does not read studies
    file = here / "mine/fusion/add.yaml"
    file.write_bytes((CONF_DIR / "fusion/add.yaml").read_bytes())  # a copy changes nothing
    check_config_folders(["-cd", "mine"])
    file.write_text("{name: add, _target_: own.Add}")
    wanted = (
        "mine/fusion/add.yaml: Hydra reads posfuse's own conf/fusion/add.yaml instead; rename this "
        "file, and its key name if it has one"
    )
    assert refusal(check_config_folders, ["hydra.searchpath=[mine]"]) == wanted
    assert refusal(config_folder, "searchpath", here, "mine") == f"{here}/{wanted}"
