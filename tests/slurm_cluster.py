"""A real SLURM of one node that lives in a folder, without systemd; tests use it too."""

import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch")
MODULES = ("submitit", "hydra_plugins.hydra_submitit_launcher")
INSTALL = "needs SLURM: apt-get install slurm-wlm munge, pip install -e '.[slurm]'"
HANG = 600  # seconds after which a program of SLURM counts as hanging

# Preemption as on clusters: a job in `urgent` makes SLURM requeue a job in `main`.
CONFIG = """
ClusterName=posfuse
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=2,bf_interval=2,batch_sched_delay=0
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SlurmdParameters=config_overrides
ReturnToService=2
KillWait=20
MinJobAge=86400
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES PriorityTier=1 GraceTime=20 State=UP
PartitionName=urgent Nodes=ALL PriorityTier=2 PreemptMode=OFF State=UP
"""

# submitit calls sacct, which needs a database. slurmctld has the same information for MinJobAge
# seconds after a job's end; submitit asks every ten minutes.
SACCT = """#!/bin/sh
echo "JobID|State|NodeList"
scontrol show job --oneliner | sed -nE '
  s/^JobId=([0-9]+).* JobState=([A-Z_]+).* NodeList=([^ ]*).*/\\1|\\2|\\3|&/
  s/^[0-9]+(.*) ArrayJobId=([0-9]+) ArrayTaskId=([0-9]+) .*/\\2_\\3\\1/
  s/^[0-9]+(.*) ArrayJobId=([0-9]+) ArrayTaskId=([^ ]+) .*/\\2_[\\3]\\1/
  s/^([^|]*\\|[^|]*\\|[^|]*)\\|.*/\\1/p'
"""


def missing() -> list[str]:
    """The programs of SLURM and the modules of its launcher that are not installed."""
    programs = [name for name in PROGRAMS if not shutil.which(name, path=_path())]
    return programs + [name for name in MODULES if not importlib.util.find_spec(name)]


def _path() -> str:
    return f"{os.environ['PATH']}:/usr/sbin:/sbin"


def free_ports(n: int) -> list[int]:
    sockets = [socket.socket() for _ in range(n)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


@contextmanager
def cluster(folder: Path, cpus: int = 2) -> Iterator[dict[str, str]]:
    """Start SLURM in `folder`, whose path must be short, and yield the environment for its
    commands; stop it afterwards. It runs `cpus` jobs at once, however many cores there are."""
    for name in ("bin", "state", "spool"):
        (folder / name).mkdir(parents=True)
    host, user = socket.gethostname().split(".")[0], subprocess.getoutput("id -un")
    config = CONFIG.format(host=host, user=user, folder=folder, ports=free_ports(2), cpus=cpus)
    (folder / "slurm.conf").write_text(config, encoding="utf-8")
    key = folder / "munge.key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o600)
    sacct = folder / "bin" / "sacct"
    sacct.write_text(SACCT, encoding="utf-8")
    sacct.chmod(0o755)
    environment = {
        **os.environ,
        "SLURM_CONF": str(folder / "slurm.conf"),
        "PATH": f"{folder}/bin:{_path()}",
    }
    munge = [
        "munged", "--foreground", "--force", f"--key-file={key}",
        f"--socket={folder}/munge.socket", f"--pid-file={folder}/munge.pid",
        f"--log-file={folder}/munge.log", f"--seed-file={folder}/munge.seed",
    ]  # fmt: skip
    daemons = []
    try:
        # Each needs the one before it.
        for command, is_ready in (
            (munge, (folder / "munge.socket").exists),
            (["slurmctld", "-D"], lambda: "is UP" in output(["scontrol", "ping"], environment)),
            (["slurmd", "-D", "-N", host], lambda: True),  # wait_until_idle waits for it
        ):
            with (folder / "daemons.log").open("a", encoding="utf-8") as log:
                daemon = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
            daemons.append(daemon)
            end = time.monotonic() + HANG
            while not is_ready() and daemon.poll() is None and time.monotonic() < end:
                time.sleep(0.05)
        wait_until_idle(environment, daemons, folder)
        yield environment
    finally:
        subprocess.run(["scancel", "--user", user], env=environment, check=False)
        jobs = ["squeue", "--noheader"]
        end = time.monotonic() + HANG
        while time.monotonic() < end and output(jobs, environment):
            time.sleep(0.5)
        for daemon in reversed(daemons):
            daemon.send_signal(signal.SIGTERM)
            try:
                daemon.wait(timeout=HANG)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()


def output(command: list[str], environment: dict[str, str]) -> str:
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    return result.stdout.strip()


def wait_until_idle(
    environment: dict[str, str], daemons: list[subprocess.Popen], folder: Path
) -> None:
    end = time.monotonic() + HANG
    while output(["sinfo", "--noheader", "--partition=main", "--format=%T"], environment) != "idle":
        ended = [daemon.args for daemon in daemons if daemon.poll() is not None]
        if ended or time.monotonic() > end:
            log = (folder / "daemons.log").read_text(encoding="utf-8")[-2000:]
            raise RuntimeError(f"SLURM does not start; ended: {ended}; {folder}/*.log: {log}")
        time.sleep(0.5)
