"""The folder of sweeps at the top of the repository, which Git ignores except for its README."""

import shutil
import subprocess

import pytest

from posfuse.config import CONF_DIR
from posfuse.errors import InputError
from posfuse.evidence.collect import collect
from posfuse.sweeps.status import runs_of
from small_records import write_sweep

TOP = CONF_DIR.parent


def test_the_readme_of_multirun_is_not_taken_for_a_run(tmp_path):
    shutil.copy(TOP / "multirun" / "README.md", tmp_path)
    (tmp_path / ".cache").mkdir()
    with pytest.raises(InputError, match="no finished runs"):
        collect(tmp_path)
    write_sweep(tmp_path / "mine", {"add": [0.5, 0.6]})
    runs, problems = collect(tmp_path)
    assert (set(runs["sweep_id"]), problems) == ({"mine"}, [])
    assert [run.cell for run in runs_of(tmp_path)] == ["mine/tiny/sinusoidal/add"] * 2


@pytest.mark.skipif(not (TOP / ".git").exists() or not shutil.which("git"), reason="not a checkout")
def test_git_ignores_sweeps_but_not_their_readme():
    ignored = {"README.md": False, "mine/multirun.yaml": True, ".cache/x": True}
    command = ["git", "-c", "safe.directory=*", "check-ignore", "--quiet", "--no-index"]
    for path, expected in ignored.items():
        asked = [*command, f"multirun/{path}"]
        status = subprocess.run(asked, cwd=TOP, check=False).returncode
        assert status == (0 if expected else 1), path
