"""A run's folder is locked by one process at a time, and a kill releases the lock."""

import subprocess
import sys

import pytest

from posfuse.errors import AlreadyRunning
from posfuse.runs import records


def test_a_folder_is_locked_until_its_process_is_killed(tmp_path) -> None:
    code = (
        "import sys; from pathlib import Path; from posfuse.runs.records import sole_use\n"
        "with sole_use(Path(sys.argv[1])): print('held', flush=True); sys.stdin.read()"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert other.stdout.readline() == b"held\n"
    with (
        pytest.raises(AlreadyRunning, match="another process is running"),
        records.sole_use(tmp_path),
    ):
        pass
    other.kill()
    other.wait()
    with records.sole_use(tmp_path):
        pass
