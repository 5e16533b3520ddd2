"""A small corpus, and the mark `system` for every test of this folder."""

from pathlib import Path

import pytest

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items):
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker("system")


@pytest.fixture(scope="session")
def corpus(tmp_path_factory):
    from small_runs import write_corpus  # slow: see tests/run/conftest.py

    return write_corpus(tmp_path_factory.mktemp("system") / "corpus")
