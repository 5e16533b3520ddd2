"""The arguments of posfuse train: overrides around options, and folders of config files."""

import re

import pytest

from posfuse.config import CONF_DIR
from posfuse.process.arguments import check_protocol, overrides_first
from posfuse.process.config_folders import check_config_folders, config_folder, split_searchpath
from refusals import refusal

# Forms of a command, and the arguments that Hydra's parser gets.
ORDERS = {
    "a=1 -cd my fusion=foo": "a=1 fusion=foo -cd my",
    "a=1 --config-dir=my fusion=foo": "a=1 fusion=foo --config-dir=my",
    "--config-dir=a=b c=1": "c=1 --config-dir=a=b",
    "--config-dir runs/seed=0 fusion=add": "fusion=add --config-dir runs/seed=0",
    "fusion=add -i seed=1": "fusion=add seed=1 -i",
    "--inf ~logger.tags": "~logger.tags --inf",
    "seed=1 --info defaults fusion=add": "seed=1 fusion=add --info defaults",
    "seed=1 --info=defaults fusion=add": "seed=1 fusion=add --info=defaults",
    "seed=1 -c job fusion=add": "seed=1 fusion=add -c job",
    "seed=1 --cfg=job --package model fusion=add": "seed=1 fusion=add --cfg=job --package model",
    "seed=1 -m foo": "seed=1 foo -m",
    "seed=1 --resolve -c job --multirun b=2": "seed=1 b=2 --resolve -c job --multirun",
    "~data.corpus +data.corpus={a:1}": "~data.corpus +data.corpus={a:1}",  # not twice
    "a=1 b=a=1": "a=1 b=a=1",
}


def test_overrides_stand_before_the_options():
    for given, ordered in ORDERS.items():
        assert overrides_first(given.split()) == ordered.split(), given


@pytest.mark.parametrize(
    "given",
    [
        "seed=0,1 seed=2,3",
        "seed=0 -m seed=0",
        "seed=0 ++seed=1",
        "model.dropout=0 ~model.dropout",
        "~logger.tags +logger.tags=[a] logger.tags=[b]",
        "hydra.launcher.n_jobs=1 hydra.launcher.n_jobs=2",
    ],
)
def test_a_key_that_is_given_twice_is_refused(given):
    line = refusal(overrides_first, given.split())
    assert re.match(r"\S+: given twice \(\S+ and \S+\); give it once", line)


def test_a_protocol_is_not_checked_if_a_folder_of_config_files_is_an_address():
    unknown = "protocol: no 'mine'; use one of agnews, arxiv, imdb"
    assert refusal(check_protocol, "mine", []) == unknown
    check_protocol("mine", ["pkg://a.b"])
    for name in ("null", "quickstart/listops"):
        check_protocol(name, [])


@pytest.fixture
def here(tmp_path, monkeypatch):
    """The current folder, in which the folder `mine` has its own operator."""
    (tmp_path / "mine/fusion").mkdir(parents=True)
    (tmp_path / "mine/fusion/own.yaml").write_text("name: own")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_search_path_on_the_command_line():
    given = ["a=1", "hydra.searchpath=[my_conf,'file:///b c']"]
    assert split_searchpath(given) == (["my_conf", "file:///b c"], ["a=1"])
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
    options = ["--config-name", "nope", "-cd", "mine", "-m", "--cfg", "job"]
    check_config_folders(["fusion=own", *options])


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
