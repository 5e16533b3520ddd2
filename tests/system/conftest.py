"""The mark `system` for every test of this folder."""

from pathlib import Path

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items):
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker("system")
