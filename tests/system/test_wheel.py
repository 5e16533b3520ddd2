"""A built wheel works in an empty folder, without the checkout."""

import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

import posfuse
from processes import HANG
from small_runs import SMALL, replaced, write_corpus

TOP = Path(__file__).parents[2]
OPERATOR = """
from posfuse.model.fusion import Add

class HalfTable(Add):
    def project(self, table):
        return (table / 2,)
"""


def installed_commit(python, folder):
    """The commit that records of the installed package name."""
    code = "from posfuse.process.commit import commit; print(commit())"
    return call([python, "-c", code], folder).strip()


def call(command, folder, **environment):
    """Run a command in `folder`, without the checkout's PYTHONPATH; returns its stdout."""
    done = subprocess.run(
        command, cwd=folder, env={"PATH": "/usr/bin:/bin", "HOME": str(folder), **environment},
        timeout=HANG, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{command}:\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The bin folder of an environment with the wheel and, through a .pth file, the dependencies.
    Python does not read the .pth file of the checkout in a folder that another one names."""
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    build = ["wheel", "-q", "--no-deps", "--no-build-isolation", "-w", folder]
    environment = {**os.environ, "POSFUSE_COMMIT": "of this build"}
    subprocess.run([*pip, *build, TOP], check=True, env=environment)
    (wheel,) = folder.glob("*.whl")
    assert wheel.name == f"posfuse-{posfuse.__version__}-py3-none-any.whl"
    venv.create(folder / "venv")
    python = folder / "venv" / "bin" / "python"
    install = ["--python", python, "install", "-q", "--no-deps", "--no-index", wheel]
    subprocess.run([*pip, *install], check=True)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    site = folder / "venv" / "lib" / version / "site-packages"
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    return python.parent


def test_the_wheel_trains_an_own_operator_and_reports_the_sweep(installed, tmp_path):
    corpus = write_corpus(tmp_path / "corpus")
    empty = tmp_path / "empty"
    (empty / "my_conf" / "fusion").mkdir(parents=True)
    (empty / "my_operators.py").write_text(OPERATOR)
    yaml = "name: half_table\n_target_: my_operators.HalfTable\n"
    (empty / "my_conf" / "fusion" / "half_table.yaml").write_text(yaml)
    where = call(
        [installed / "python", "-c", "import posfuse.config as c; print(c.CONF_DIR)"], empty
    )
    assert where.startswith(str(installed.parent))
    assert installed_commit(installed / "python", empty) == "of this build"

    sweep = ["-m", "--config-dir", "my_conf", "fusion=add,half_table", "seed=0,1", "sweep_id=mine"]
    data = ["data=folder", "data.name=tiny", f"data.path={corpus}", "data.batch_size=16"]
    small = replaced([*SMALL, "trainer.max_epochs=1"])
    out = call([installed / "posfuse", "train", *sweep, *data, *small], empty, PYTHONPATH=".")
    assert out.count("test accuracy") == 4
    call([installed / "posfuse", "report", "multirun/mine"], empty)
    page = (empty / "multirun" / "mine" / "report" / "index.html").read_text()
    assert "half_table" in page
