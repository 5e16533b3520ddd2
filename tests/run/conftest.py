"""One trained run that many tests read. A test that changes a file of it works on a copy."""

import pytest

from posfuse.train import train
from small_runs import REFERENCE, small_config, write_corpus


@pytest.fixture(scope="session")
def corpus(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("run") / "corpus")


@pytest.fixture(scope="session")
def reference(corpus, tmp_path_factory):
    """An uninterrupted run of the config REFERENCE: its folder and its record."""
    folder = tmp_path_factory.mktemp("reference")
    return folder, train(small_config(corpus, *REFERENCE), folder)
