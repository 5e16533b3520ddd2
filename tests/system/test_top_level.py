"""The project's top level is complete, and its folder of sweeps stays out of Git."""

import shutil
import subprocess

import pytest

from posfuse.analysis.evidence.collect import collect
from posfuse.config import CONF_DIR
from posfuse.errors import InputError
from posfuse.sweeps.status import runs_of
from small_records import write_sweep

TOP = CONF_DIR.parent


@pytest.mark.parametrize(
    "name",
    ["src/posfuse", "conf/train.yaml", "tests", "notebooks", "multirun/README.md", "Makefile",
     "pyproject.toml", "README.md", "docs", "benchmarks"],
)  # fmt: skip
def test_the_top_level_is_complete(name):
    assert (TOP / name).exists()


def test_the_page_on_sweeps_names_the_commands_that_read_one():
    text = (TOP / "multirun" / "README.md").read_text()
    for command in ("posfuse-status", "posfuse-report", "posfuse-sync"):
        assert f"{command} multirun/" in text


def test_the_page_on_sweeps_is_no_run(tmp_path):
    shutil.copy(TOP / "multirun" / "README.md", tmp_path)
    (tmp_path / ".cache").mkdir()
    with pytest.raises(InputError, match="no finished runs"):
        collect(tmp_path)
    write_sweep(tmp_path / "mine", {"add": [0.5, 0.6]})
    runs, problems = collect(tmp_path)
    assert (set(runs["sweep_id"]), problems) == ({"mine"}, [])
    assert [run.cell for run in runs_of(tmp_path)] == ["mine/tiny/sinusoidal/add"] * 2


@pytest.mark.skipif(not (TOP / ".git").exists() or not shutil.which("git"), reason="no checkout")
@pytest.mark.parametrize(
    ("path", "ignored"), [("README.md", False), ("mine/multirun.yaml", True), (".cache/x", True)]
)
def test_git_ignores_sweeps_but_not_their_page(path, ignored):
    command = ["git", "check-ignore", "--quiet", "--no-index", f"multirun/{path}"]
    assert subprocess.run(command, cwd=TOP, check=False).returncode == (0 if ignored else 1)
