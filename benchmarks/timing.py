"""The device that benchmarks use, its clock, and its rate of matrix products."""

import statistics
import time

import torch

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
SIDE, PRODUCTS = 2048, 9  # side and number of the products that measure the machine's rate


def product_rate(kind: torch.dtype, device: torch.device) -> float:
    """FLOP/s of a product of 2048 x 2048 matrices of this type, with the current threads."""
    left, right = torch.randn(2, SIDE, SIDE, device=device).to(kind)
    seconds = []
    for _ in range(PRODUCTS + 2):
        start = now(device)
        left @ right
        seconds.append(now(device) - start)
    return 2 * SIDE**3 / statistics.median(seconds[2:])  # the first ones start the threads


def now(device: torch.device) -> float:
    """Seconds of a clock, read after the device has finished its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()
