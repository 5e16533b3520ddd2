"""What tests share: one thread, and the commands as processes that cost no imports."""

import json
import os
import signal
import subprocess
import sys
from collections import namedtuple
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, settings

from posfuse.process import environment
from processes import HANG

# Hypothesis fails a test whose examples take long, which they do on a busy machine.
settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # tests send it, and nohup has it ignored
environment.do_without_broken_amx()  # ahead of any product


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    torch.set_num_threads(1)


Result = namedtuple("Result", "code out err")

# A process with everything imported, which forks one process for each command: a command costs
# its own work and not seconds of imports.
SERVER = """
import json, os, sys
import torch, lightning, posfuse.training.build, posfuse.train
import posfuse.analysis.report, posfuse.sweeps.status
commands = {"posfuse-train": posfuse.train.main, "posfuse-report": posfuse.analysis.report.main,
    "posfuse-status": posfuse.sweeps.status.main}
while line := sys.stdin.readline():
    argv, folder = json.loads(line)
    process = os.fork()
    if process == 0:
        os.chdir(folder)
        for number, name in ((0, os.devnull), (1, "out"), (2, "err")):
            flags = os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT | os.O_TRUNC
            os.dup2(os.open(name if number == 0 else f"{folder}.{name}", flags), number)
        sys.argv = argv
        commands[argv[0]]()
        sys.exit()
    print(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), flush=True)
"""


@pytest.fixture(scope="session")
def server():
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
def run(server, tmp_path):
    """Run a command in a folder of this test; gives its exit status and what it printed."""
    folder = tmp_path / "work"
    folder.mkdir()

    def call(*argv):
        server.stdin.write(json.dumps([list(map(str, argv)), str(folder)]) + "\n")
        server.stdin.flush()
        code = int(server.stdout.readline())
        return Result(code, *(Path(f"{folder}.{end}").read_text() for end in ("out", "err")))

    return call
