"""Every launcher that is installed gives the same records."""

import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest

import slurm_cluster
from processes import ended
from small_runs import write_corpus
from sweeps import PARALLEL, SIX, assert_same_results, one_after_another, sweep

LAUNCHERS = ["parallel", "slurm", "ray"]
COUNT = ["trainer.max_epochs=2", "encoding=sinusoidal,rope", *SIX]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("launchers") / "corpus")


@pytest.fixture(scope="module")
def whole(corpus, tmp_path_factory):
    return one_after_another(corpus, tmp_path_factory.mktemp("basic"), *COUNT)


@contextmanager
def launcher(name):
    """The overrides of a command for this launcher, and its environment."""
    short = Path(tempfile.mkdtemp())  # sockets have paths of 107 letters at most
    chosen = [f"hydra/launcher={name}"]
    try:
        if name == "slurm":
            if slurm_cluster.missing():
                pytest.skip(f"slurm {slurm_cluster.INSTALL}")
            with slurm_cluster.cluster(short / "slurm") as environment:
                yield chosen, environment
        elif name == "ray":
            pytest.importorskip("ray", reason="ray needs pip install -e '.[ray]'")
            init = {"_temp_dir": short, "num_cpus": 2, "include_dashboard": False}
            yield chosen + [f"+hydra.launcher.ray.init.{k}={v}" for k, v in init.items()], None
        else:
            yield PARALLEL, None
    finally:
        shutil.rmtree(short, ignore_errors=True)


@pytest.mark.slow
@pytest.mark.parametrize("name", LAUNCHERS)
def test_every_launcher_yields_the_same_records(name, corpus, whole, tmp_path):
    with launcher(name) as (chosen, environment):
        done = ended(sweep(corpus, *COUNT, *chosen), tmp_path, environment)
    assert done.returncode == 0, done.stderr
    assert_same_results(whole, tmp_path, 12)
