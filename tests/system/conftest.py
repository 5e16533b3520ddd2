"""Commands as processes that start with everything imported."""

import json
import os
import subprocess
import sys
from collections import namedtuple
from pathlib import Path

import pytest

from processes import HANG

HERE = Path(__file__).parent
Result = namedtuple("Result", "code out err")

# Imports what runs and reports need, then forks one process for each command, so that a command
# takes its own time and not seconds of imports. It is no pool of multiprocessing, whose children
# posfuse takes for the workers of a launcher.
SERVER = """
import json, os, sys
import posfuse.cli, posfuse.report.entry, posfuse.train, posfuse.training.run
while line := sys.stdin.readline():
    argv, folder = json.loads(line)
    process = os.fork()
    if process == 0:
        os.chdir(folder)
        for number, name in ((0, os.devnull), (1, f"{folder}.out"), (2, f"{folder}.err")):
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC if number else os.O_RDONLY
            os.dup2(os.open(name, flags), number)
        sys.argv = argv
        posfuse.cli.main()
        sys.exit()
    print(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), flush=True)
"""


def pytest_collection_modifyitems(items):
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker("system")


@pytest.fixture(scope="session")
def command_server():
    environment = {k: v for k, v in os.environ.items() if k != "HYDRA_FULL_ERROR"}
    process = subprocess.Popen(
        [sys.executable, "-c", SERVER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
        text=True,
    )
    yield process
    process.stdin.close()
    process.wait(timeout=HANG)


@pytest.fixture
def run(command_server, tmp_path):
    """Run a command in a folder of this test; returns its exit status and what it printed."""
    folder = tmp_path / "work"
    folder.mkdir()

    def call(*argv):
        command_server.stdin.write(json.dumps([list(map(str, argv)), str(folder)]) + "\n")
        command_server.stdin.flush()
        code = int(command_server.stdout.readline())
        return Result(code, *(Path(f"{folder}.{end}").read_text() for end in ("out", "err")))

    return call
