"""The default tier, one thread for every test, small corpora, and a fake W&B server."""

import os
import signal
import sys

import pytest
import torch
from hypothesis import HealthCheck, settings

from posfuse.process import environment

# A busy machine must not fail a test: no deadlines for Hypothesis' examples.
settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # tests send it, and nohup ignores it
environment.do_without_broken_amx()  # before the first matrix product
for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "COLUMNS"):  # rich would write for a terminal
    os.environ.pop(name, None)


def pytest_configure(config):
    """Without a path and without -m, run no slow test and only the smoke tests of tests/system."""
    given = config.args_source is config.ArgsSource.ARGS
    if not given and not config.option.markexpr:
        config.option.markexpr = "not slow and (smoke or not system)"


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def corpus(tmp_path_factory):
    """Texts of 3 to 12 words."""
    from small_runs import write_corpus  # slow, and pytest's main process reads this file too

    return write_corpus(tmp_path_factory.mktemp("texts") / "corpus")


@pytest.fixture(scope="session")
def two_splits(tmp_path_factory):
    """Such texts without a validation file: the validation split is drawn from train."""
    from small_runs import write_corpus

    return write_corpus(tmp_path_factory.mktemp("texts") / "corpus", validation=False)


@pytest.fixture
def own_module(tmp_path, monkeypatch):
    """Write a module of the user's own, which this test can import."""
    monkeypatch.syspath_prepend(tmp_path)

    def write(name, code):
        path = tmp_path / f"{name}.py"
        path.write_text(code)
        monkeypatch.delitem(sys.modules, name, raising=False)  # another test may have imported it
        return path

    return write


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    """A fake W&B server, which W&B uses in this process."""
    from fake_wandb import serve
    from uploads import in_use  # imports wandb, which most tests do not need

    with serve() as fake, in_use(fake, tmp_path_factory.mktemp("home")):
        yield fake


@pytest.fixture
def fake(running):
    """The server without any runs; a test fails if it was asked something unknown."""
    running.clear()
    yield running
    assert running.unknown == []
