"""The device that benchmarks use, its clock, and its rate of matrix products."""

import statistics
import time

import torch

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
# Side of the products that measure the machine's rate, and their number in a measurement. On a GPU
# a single small product would time its launch as well.
SIDE, AT_ONCE = (8192, 20) if DEVICE.type == "cuda" else (2048, 1)
MEASUREMENTS = 9


def product_rate(kind: torch.dtype, device: torch.device) -> float:
    """FLOP/s of a product of SIDE x SIDE matrices of this type, with the current threads."""
    left, right = torch.randn(2, SIDE, SIDE, device=device).to(kind)
    seconds = []
    for _ in range(MEASUREMENTS + 2):
        start = now(device)
        for _ in range(AT_ONCE):
            left @ right
        seconds.append(now(device) - start)
    # The first ones start the threads.
    return 2 * SIDE**3 * AT_ONCE / statistics.median(seconds[2:])


def now(device: torch.device) -> float:
    """Seconds of a clock, read after the device has finished its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def used(device: torch.device) -> float:
    """Seconds of this process's CPU time, in which other processes count less; on a GPU those of
    the clock."""
    return time.process_time() if device.type == "cpu" else now(device)
