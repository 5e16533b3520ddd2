"""Rounding errors of bfloat16 attention: with blocks of scores, and with torch's kernel.

    python benchmarks/rounding.py

Both get the same bfloat16 numbers. The reference computes with them in float64. CPU only.
"""

import statistics
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

import results
from posfuse.model.kernels import block_attention

MEASURES = "model.kernels"
SHAPES = ((40, 32), (128, 32), (200, 64))  # tokens, features of a head
TIMES = (1, 3)  # the factors of q and k
DOCUMENTS, HEADS = 8, 4
Attention = Callable[[Tensor, Tensor, Tensor], Tensor]


def blocks(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return block_attention(q, k, v, None, 0.0, lambda _, queries: None)


WAYS: dict[str, Attention] = {"blocks": blocks, "kernel": F.scaled_dot_product_attention}


def step(attend: Attention, inputs: list[Tensor], dy: Tensor) -> tuple[list[Tensor], float]:
    """The output, the gradients of q, k and v, and the CPU seconds for both."""
    inputs = [x.detach().clone().requires_grad_() for x in inputs]
    start = time.process_time()
    y = attend(*inputs)
    gradients = torch.autograd.grad(y, inputs, dy)
    return [y.detach(), *gradients], time.process_time() - start


def rows(repeats: int) -> list[list[str | float]]:
    """One row per method, shape and factor; the two methods take turns."""
    torch.manual_seed(0)
    table: list[list[str | float]] = []
    for length, d_head in SHAPES:
        for factor in TIMES:
            q, k, v, dy = torch.randn(4, DOCUMENTS, HEADS, length, d_head).bfloat16()
            inputs = [q * factor, k * factor, v]
            exact, _ = step(
                F.scaled_dot_product_attention, [x.double() for x in inputs], dy.double()
            )
            seconds: dict[str, list[float]] = {way: [] for way in WAYS}
            found = {}
            for _ in range(repeats + 1):
                for way, attend in WAYS.items():
                    found[way], taken = step(attend, inputs, dy)
                    seconds[way].append(taken)
            for way in WAYS:
                pairs = zip(found[way], exact, strict=True)
                errors = [((x.double() - y).norm() / y.norm()).item() for x, y in pairs]
                took = 1000 * statistics.median(seconds[way][1:])
                table.append(
                    [f"{length} × {d_head}", factor, way, *map("{:.1e}".format, errors), took]
                )
    return table


def main() -> None:
    parser = results.parser(__file__, __doc__)
    parser.add_argument("--repeats", type=int, default=9)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    columns = ["tokens × head", "q, k ×", "method", "y", "dq", "dk", "dv", "ms"]
    note = (
        f"Relative errors (Euclidean norm) against float64 for the same {DOCUMENTS} documents and "
        f"{HEADS} heads of standard normal bfloat16 numbers, and the median CPU time of a forward "
        "and backward pass with one thread. The two methods take turns."
    )
    found = results.table("Rounding of bfloat16 attention", columns, rows(arguments.repeats), note)
    results.write(arguments, [found], {})


if __name__ == "__main__":
    main()
