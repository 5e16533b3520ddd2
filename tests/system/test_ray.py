"""Sweeps on a ray cluster of two nodes on this machine; one node is lost."""

import shutil
import signal
import tempfile
from pathlib import Path

import pytest

from processes import HANG, started, succeeded, wait_for
from sweeps import SIX, assert_same_results, at_work, kinds, one_after_another, results, sweep

pytest.importorskip("ray", reason="needs the extra: pip install -e '.[ray]'")
pytestmark = pytest.mark.slow
LONG = [*SIX, "trainer.max_epochs=100"]


@pytest.fixture(scope="module")
def whole(corpus, tmp_path_factory):
    return one_after_another(corpus, tmp_path_factory.mktemp("whole"), *LONG)


@pytest.fixture(autouse=True)
def on_this_machine_alone(monkeypatch):
    """Otherwise ray replaces 127.0.0.1 by the address of this machine in the network."""
    monkeypatch.setenv("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")


@pytest.fixture
def cluster(monkeypatch):
    """Two nodes with a core each; gives ray's cluster and the second node."""
    from ray.cluster_utils import Cluster

    folder = Path(tempfile.mkdtemp(prefix="ray"))  # short: sockets have paths of 107 letters
    monkeypatch.setenv("RAY_TMPDIR", str(folder))
    common = {"num_cpus": 1, "object_store_memory": 80 * 2**20, "include_dashboard": False}
    common["node_ip_address"] = "127.0.0.1"
    nodes = Cluster(initialize_head=True, head_node_args=common)
    try:
        yield nodes, nodes.add_node(**common)
    finally:
        nodes.shutdown()
        shutil.rmtree(folder, ignore_errors=True)


def of(cluster):
    return ["hydra/launcher=ray", f"hydra.launcher.ray.init.address={cluster.address}"]


def test_the_runs_of_a_lost_node_move_to_another(corpus, cluster, whole, tmp_path):
    nodes, second = cluster
    argv = sweep(corpus, *LONG, *of(nodes))
    process = started(argv, tmp_path)
    wait_for(lambda: len(at_work(tmp_path)) == 2)
    nodes.remove_node(second, allow_graceful=False)
    _, err = process.communicate(timeout=HANG)
    assert process.returncode == 0, err
    assert_same_results(whole, tmp_path, 6)


def test_a_lost_node_fails_its_run_without_retries(corpus, cluster, whole, tmp_path):
    nodes, second = cluster
    argv = sweep(corpus, *LONG, *of(nodes))
    process = started([*argv, "hydra.launcher.ray.remote.max_retries=0"], tmp_path)
    wait_for(lambda: len(at_work(tmp_path)) == 2)
    nodes.remove_node(second, allow_graceful=False)
    _, err = process.communicate(timeout=HANG)
    assert process.returncode == 1, err
    assert "failed: tiny/sinusoidal/" in err
    assert "error: 1 of 6 runs failed; the others are done." in err
    assert "Traceback" not in err
    assert kinds(tmp_path) == ["failed"]
    assert len(results(tmp_path)) == 5
    succeeded(argv, tmp_path)
    assert_same_results(whole, tmp_path, 6)


def test_an_interrupted_command_saves_its_runs(corpus, cluster, tmp_path):
    nodes, _ = cluster
    process = started(sweep(corpus, *SIX, "trainer.max_epochs=3000", *of(nodes)), tmp_path)
    wait_for(lambda: len(at_work(tmp_path)) == 2)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=HANG)
    assert process.returncode == 75, err
    assert kinds(tmp_path) == ["interrupted", "interrupted"]
