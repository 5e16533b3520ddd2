"""A built wheel works in an empty folder, without the checkout."""

import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

import posfuse
from processes import succeeded
from small_runs import small_overrides, write_corpus

TOP = Path(__file__).parents[2]
OPERATOR = """
from posfuse.model.fusion import Add

class HalfTable(Add):
    def project(self, table):
        return (table / 2,)
"""


# Where the config files of the package are, and the commit that its records name.
ORIGIN = """
from posfuse import config
from posfuse.process.commit import commit
print(config.CONF_DIR, commit(), sep="\\n")
"""


def call(command, folder, **environment):
    """Run a command in `folder`, without the checkout's PYTHONPATH; returns its stdout."""
    environment |= {"PATH": "/usr/bin:/bin", "HOME": str(folder)}
    return succeeded(command, folder, environment).stdout


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
    folder, commit = call([installed / "python", "-c", ORIGIN], empty).splitlines()
    assert folder.startswith(str(installed.parent))
    assert commit == "of this build"

    sweep = ["-m", "--config-dir", "my_conf", "fusion=add,half_table", "seed=0,1", "sweep_id=mine"]
    small = small_overrides(corpus, "trainer.max_epochs=1")
    out = call([installed / "posfuse", "train", *sweep, *small], empty, PYTHONPATH=".")
    assert out.count("test accuracy") == 4
    call([installed / "posfuse", "report", "multirun/mine"], empty)
    page = (empty / "multirun" / "mine" / "report" / "index.html").read_text()
    assert "half_table" in page
