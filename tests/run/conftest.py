"""One trained run that many tests read, and posfuse train in this process. A test that changes a
file of the run works on a copy. Fixtures import what is slow: pytest's main process, which runs no
test with -n, reads this file too."""

import logging
from collections import namedtuple

import pytest
from hydra.core.hydra_config import HydraConfig
from hydra.core.singleton import Singleton

from commands import called
from posfuse.process import signals

Result = namedtuple("Result", "code out err")


@pytest.fixture(scope="session")
def reference(corpus, tmp_path_factory):
    """An uninterrupted run of the config REFERENCE: its folder and its record."""
    from posfuse.train import train
    from small_runs import REFERENCE, small_config

    folder = tmp_path_factory.mktemp("reference")
    return folder, train(small_config(corpus, *REFERENCE), folder)


@pytest.fixture
def kept_logging(monkeypatch):
    """Restore the loggers, which Hydra configures in every job."""
    loggers = logging.getLogger(), logging.getLogger("posfuse.detail")
    before = [(logger, [*logger.handlers], logger.propagate, logger.level) for logger in loggers]
    monkeypatch.setattr(logging, "raiseExceptions", logging.raiseExceptions)
    yield
    for logger, handlers, propagate, level in before:
        for handler in set(logger.handlers) - set(handlers):
            handler.close()
        logger.handlers, logger.propagate = handlers, propagate
        logger.setLevel(level)


@pytest.fixture
def command(kept_logging, tmp_path, monkeypatch, capsys):
    """Call posfuse train in a folder of this test; returns its exit status and what it printed."""
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.setattr(signals, "_received", {})
    # `execute` sets the state of a process that has none; here it would load the plugins again.
    monkeypatch.setattr(Singleton, "set_state", staticmethod(lambda state: None))

    def call(*overrides):
        monkeypatch.chdir(folder)
        monkeypatch.setenv("HYDRA_FULL_ERROR", "0")
        capsys.readouterr()
        try:
            out, end = called("train", *overrides)
        finally:
            HydraConfig.instance().cfg = None
        err = capsys.readouterr().err
        if isinstance(end, str):  # the interpreter prints it
            return Result(1, out, f"{err}{end}\n")
        return Result(end or 0, out, err)

    return call
