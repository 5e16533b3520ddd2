"""One run over several devices of a machine, a process for each. The process that was given the run
is the first of them; it starts the others, which do the same run beside it, and it alone writes.

Lightning's own way starts the whole command again in each, which a sweep has no use for.
"""

import logging
import os
import pickle
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posfuse.config import Config
from posfuse.errors import InputError, TrainingError
from posfuse.process import signals

if TYPE_CHECKING:  # torch takes seconds, in which a process is to know whom it ends with
    from torch import Tensor

SECONDS = 60  # that the others may take to end after the first
TELLING = 5.0  # seconds that one may take to end after its failure has reached the first
NUMBER = "POSFUSE_PROCESS"  # our own: LOCAL_RANK may be there for another's reasons


def rank() -> int:
    """The number of this process among those of its run."""
    return int(os.environ.get(NUMBER, 0))


def world_size() -> int:
    """How many processes train this run, as far as they have found each other."""
    from torch import distributed

    is_one_of_several = distributed.is_available() and distributed.is_initialized()
    return distributed.get_world_size() if is_one_of_several else 1


def summed(x: "Tensor") -> "Tensor":
    """The sum over the processes of the run, in place."""
    from torch import distributed

    if world_size() > 1:
        distributed.all_reduce(x)
    return x


def least(x: "Tensor") -> "Tensor":
    """The minimum over the processes of the run, in place."""
    from torch import distributed

    if world_size() > 1:
        distributed.all_reduce(x, distributed.ReduceOp.MIN)
    return x


def gathered(own: list[Any]) -> list[Any]:
    """The items of every process of the run, in the order of their numbers."""
    from torch import distributed

    if world_size() == 1:
        return own
    found: list[list[Any]] = [[]] * world_size()
    distributed.all_gather_object(found, own)
    return [item for part in found for item in part]


@contextmanager
def replicas(cfg: Config, folder: Path) -> Iterator[None]:
    """Have the run's other processes beside this one; they end with it, however it ends."""
    if cfg.trainer.devices == 1 or rank() > 0:
        yield
        return
    from torch import distributed

    logging.getLogger("lightning.fabric").setLevel(logging.WARNING)  # it would tell of the others
    store = _store()  # held until the end: torch comes to the same one by its port
    group = {
        "MASTER_ADDR": store.host, "MASTER_PORT": str(store.port), "LOCAL_RANK": "0",
        "NODE_RANK": "0",
    }  # fmt: skip
    processes: list[subprocess.Popen[bytes]] = []
    try:
        os.environ.update(group)
        for number in range(1, cfg.trainer.devices):
            processes.append(_start(number, cfg, folder))
        yield
        with suppress(subprocess.TimeoutExpired):
            for process in processes:
                process.wait(SECONDS)
    except RuntimeError as error:
        if found := _failure(processes):  # all that this one has seen of it
            raise found from error
        raise
    finally:
        for process in processes:
            process.kill()
            process.wait()
        for name in group:
            os.environ.pop(name, None)
        if world_size() > 1:
            distributed.destroy_process_group()


def _store() -> Any:
    """torch's store, where the processes find each other: its port is held from now on, and is for
    this machine alone."""
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    here = socket.create_server(("127.0.0.1", 0))
    address, port = here.getsockname()
    return TCPStore(
        address, port, is_master=True, wait_for_workers=False, multi_tenant=True,
        master_listen_fd=here.detach(),
    )  # fmt: skip


def _failure(processes: list[subprocess.Popen[bytes]]) -> Exception | None:
    """What ended one of the others: what it tells, else that it was killed, else its status."""
    end = time.monotonic() + TELLING
    for process in processes:
        with suppress(subprocess.TimeoutExpired):
            process.wait(max(0, end - time.monotonic()))
    ended = [(p.returncode, n, p) for n, p in enumerate(processes, 1) if p.returncode]
    for _, _, process in ended:
        assert process.stdout is not None
        if said := process.stdout.read():
            error: Exception = pickle.loads(said)
            return error
    if not ended:
        return None
    status, number, _ = min(ended)  # a signal's is negative
    return RuntimeError(
        f"process {number} of trainer.devices={len(processes) + 1} ended with status {status}"
    )


def _start(number: int, cfg: Config, folder: Path) -> subprocess.Popen[bytes]:
    # The config may name classes that only this process's path leads to.
    environment = {
        **os.environ,
        "LOCAL_RANK": str(number),
        NUMBER: str(number),
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    }
    with (folder / "train.log").open("a") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "posfuse.training.replicas", str(os.getpid())],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
        )
    assert process.stdin is not None
    with process.stdin as stdin:
        pickle.dump((cfg, folder), stdin)
    return process


def main() -> None:
    """A process beside the first: signals are that one's, and when it ends this one does."""
    signals.end_with(int(sys.argv[1]), signal.SIGKILL)
    for number in signals.SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    signals.elsewhere.append("replicas")
    with os.fdopen(os.dup(1), "wb") as told:
        os.dup2(2, 1)  # what is printed belongs in train.log
        cfg, folder = pickle.load(sys.stdin.buffer)
        cfg.logger.name, cfg.trainer.progress = "none", "none"
        from posfuse.training.run import run

        try:
            run(cfg, folder)
        except (InputError, TrainingError) as error:
            pickle.dump(error, told)
            sys.exit(1)


if __name__ == "__main__":
    main()
