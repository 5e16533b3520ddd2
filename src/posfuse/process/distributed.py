"""Collective operations of the processes that train one run. With one process they do nothing."""

import os
from typing import Any

from torch import Tensor, distributed

RANK = "POSFUSE_PROCESS"  # not LOCAL_RANK, which another program may have set


def rank() -> int:
    """The number of this process among those of its run, from 0."""
    return int(os.environ.get(RANK, 0))


def world_size() -> int:
    """How many processes train this run; 1 until they have connected."""
    is_connected = distributed.is_available() and distributed.is_initialized()
    return distributed.get_world_size() if is_connected else 1


def sum_of_all(x: Tensor) -> Tensor:
    """The sum of x (...) over the processes of the run, in place."""
    if world_size() > 1:
        distributed.all_reduce(x)
    return x


def items_of_all(own: list[Any]) -> list[Any]:
    """The items of all processes of the run, ordered by rank."""
    if world_size() == 1:
        return own
    of_each: list[list[Any]] = [[]] * world_size()
    distributed.all_gather_object(of_each, own)
    return [item for items in of_each for item in items]
