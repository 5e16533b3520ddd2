"""Time the parts of a training step on long documents, and attention with each kernel, on a CPU.

    python benchmarks/long_documents.py

The model is that of conf/protocol/arxiv.yaml. Documents are random words and fill every position.
The products and exponentials of attention are also timed alone, on blocks of scores that fit into
the cache. A kernel that calls an operator of torch for each of them takes about as long as both.
"""

import argparse
import statistics
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import harness
import store
from harness import DEVICE, IS_GPU
from operators import documents, in_turn, stepper
from posfuse.config import Config
from posfuse.model import kernels
from posfuse.process import precision
from posfuse.process.environment import flushing_denormals, keep_memory

MEASURES = (
    "model training.build training.module training.classifier process.precision conf/protocol "
    "conf/speed"
)
BLOCK = 2**20  # scores
fused = F.scaled_dot_product_attention
DTYPES = {"32-true": torch.float32, "bf16-mixed": torch.bfloat16}


def config(speed: str, tokens: int) -> Config:
    cfg = harness.config(
        "data=arxiv", "protocol=arxiv", "encoding=sinusoidal", "fusion=add", f"speed={speed}",
        f"data.max_len={tokens}",
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as cfg.output_dir:  # the choice of fastest is stored there
        cfg.trainer.precision = precision.precision_of(cfg)  # as posfuse train does
    return cfg


def heads(cfg: Config, n: int, kind: torch.dtype) -> list[torch.Tensor]:
    """q, k, v of n documents, (n, H, L, D), and the gradient of attention."""
    m, draw = cfg.model, torch.Generator().manual_seed(0)
    assert m.n_heads
    assert m.d_model
    shape = n, m.n_heads, cfg.data.max_len, m.d_model // m.n_heads
    return [torch.randn(shape, generator=draw).to(DEVICE, kind) for _ in range(4)]


def with_gradients(
    attend: Callable[..., torch.Tensor], given: list[torch.Tensor]
) -> Callable[[], Any]:
    """Forward and backward pass of attention."""
    *inputs, gradient = given
    inputs = [x.requires_grad_() for x in inputs]
    return lambda: torch.autograd.grad(attend(*inputs), inputs, gradient)


def products(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> None:
    """The matrix products of a forward and a backward pass that stores no scores."""
    for some, weights, seen, values in blocks(q, k, v):
        for _ in range(3):  # q k^T, computed twice, and dy v^T
            torch.matmul(some, seen.transpose(-2, -1), out=weights)
        for _ in range(2):  # y and dq
            weights @ values
        for _ in range(2):  # dk and dv
            weights.transpose(-2, -1) @ some


def exponentials(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> None:
    """The exponentials of the weights, in the forward pass and again in the backward pass."""
    wide = (x.float() for x in (q, k, v))
    space = torch.empty(0)
    for _, weights, *_ in blocks(*wide):
        for _ in range(2):
            torch.exp(weights, out=space.resize_(weights.shape))


def blocks(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Any:
    """Queries (1, H, Q, D), space for their scores (1, H, Q, L), and the keys and values."""
    n_heads, length = q.shape[1:3]
    most = max(1, BLOCK // (n_heads * length))
    weights = q.new_zeros(1, n_heads, most, length)
    for document in range(len(q)):
        for some in q[document : document + 1].split(most, 2):
            own = document, document + 1
            yield some, weights[:, :, : some.shape[2]], k[slice(*own)], v[slice(*own)]


def part_rows(tokens: int, n: int, rounds: int) -> list[store.Row]:
    """For each speed: milliseconds per document of a step, of its attention, and of the products
    and exponentials of attention; and the largest possible gain of a step."""
    turns: dict[str, Callable[[], Any]] = {}
    configs = {speed: config(speed, tokens) for speed in ("exact", "fast")}
    for speed, cfg in configs.items():
        kind = DTYPES[cfg.trainer.precision]
        inside = cfg.model.attention_dropout
        p = cfg.model.dropout if inside is None else inside
        given = heads(cfg, n, kind)
        attend = partial(kernels.attention, mask=None, bias=None, p=p)
        turns[f"{speed} step"] = stepper(cfg, documents(n, tokens), kind)
        turns[f"{speed} attention"] = with_gradients(attend, given)
        turns[f"{speed} products"] = partial(products, *(x.detach() for x in given[:3]))
        turns[f"{speed} exponentials"] = partial(exponentials, *(x.detach() for x in given[:3]))
    ms = {name: statistics.median(of) for name, of in in_turn(turns, rounds).items()}
    rows: list[store.Row] = []
    for speed, cfg in configs.items():
        layers = cfg.model.n_layers or 1
        names = ("attention", "products", "exponentials")
        step = ms[f"{speed} step"] / n
        attention, *least = (layers * ms[f"{speed} {name}"] / n for name in names)
        bound = step / (step - attention + min(attention, sum(least)))
        rows.append(
            [tokens, speed, cfg.trainer.precision, step, attention, *least, f"{bound:.2f}×"]
        )
    return rows


def blocked(size: int, *inputs: torch.Tensor) -> torch.Tensor:
    kernels.SCORES["cpu"] = size
    return kernels.block_attention(*inputs, None, 0.0, lambda *_: None)


def two_heads(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Attention of two heads in one product of twice the width. It needs twice the operations,
    because the queries of one head are 0 at the features of the other."""
    n, n_heads, length, d_head = q.shape
    pairs = n, n_heads // 2, 2, length, d_head
    of_each = q.view(pairs).unbind(2)
    queries = torch.cat([F.pad(of_each[0], (0, d_head)), F.pad(of_each[1], (d_head, 0))], 2)
    keys, values = (x.view(pairs).transpose(2, 3).flatten(3) for x in (k, v))
    y = F.scaled_dot_product_attention(queries, keys, values, scale=d_head**-0.5)
    first, second = y.split(length, 2)
    return torch.stack((first[..., :d_head], second[..., d_head:]), 2).view(q.shape)


def weights_stored(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Attention that stores all weights for the backward pass, instead of computing them again."""
    with sdpa_kernel(SDPBackend.MATH):
        return F.scaled_dot_product_attention(q, k, v)


def by_document(given: list[torch.Tensor]) -> Callable[[], Any]:
    """Torch's attention on one document after another."""
    documents = zip(*(x.split(1) for x in given), strict=True)
    each = [with_gradients(fused, list(of)) for of in documents]
    return lambda: [attend() for attend in each]


def by_head(given: list[torch.Tensor]) -> Callable[[], Any]:
    """Torch's attention on one head in each thread."""
    of_heads = zip(*(x.split(1, 1) for x in given), strict=True)
    each = [with_gradients(fused, [x.contiguous() for x in of]) for of in of_heads]
    n = torch.get_num_threads()
    threads = ThreadPoolExecutor(n, initializer=torch.set_num_threads, initargs=(1,))
    return lambda: list(threads.map(lambda attend: attend(), each))


# From q, k, v and the gradient of attention: a function that computes both passes.
KERNELS: dict[str, Callable[[list[torch.Tensor]], Callable[[], Any]]] = {
    "torch": partial(with_gradients, fused),
    "one document after another": by_document,
    "one head per thread": by_head,
    "two heads per product": partial(with_gradients, two_heads),
    "weights stored": partial(with_gradients, weights_stored),
}
for bits in (18, 20, 22):
    KERNELS[f"blocks of 2^{bits} scores"] = partial(with_gradients, partial(blocked, 2**bits))


def kernel_rows(tokens: int, n: int, rounds: int) -> list[store.Row]:
    """Milliseconds of attention per document, without dropout, by kernel."""
    turns = {}
    for name, kind in (("float32", torch.float32), ("bfloat16", torch.bfloat16)):
        for kernel, of in KERNELS.items():
            turns[f"{kernel}, {name}"] = of(heads(config("exact", tokens), n, kind))
    before = dict(kernels.SCORES)
    try:
        cells = harness.compared(in_turn(turns, rounds), "torch, float32")
    finally:
        kernels.SCORES.update(before)
    return [[tokens, name, ms / n, ratio] for name, (ms, ratio) in cells.items()]


@flushing_denormals()  # as a run is
def measure(given: argparse.Namespace) -> list[store.Table]:
    if IS_GPU:
        raise SystemExit("error: long_documents measures a CPU; run it on a machine without a GPU")
    keep_memory()  # as a run does
    parts: list[store.Row] = []
    by_kernel: list[store.Row] = []
    for tokens in given.tokens:
        n = max(1, 2**13 // tokens)
        print(tokens, flush=True)
        parts += part_rows(tokens, n, given.rounds)
        by_kernel += kernel_rows(tokens, n, given.rounds)
    ms = ["attention ms", "its products ms", "its exponentials ms"]
    return [
        store.table(
            "A training step by part", ["tokens", "speed", "precision", "step ms", *ms, "bound"],
            parts, "Milliseconds per document. Attention, products and exponentials are sums over "
            "the layers. Bound: how many times as fast the step would be if attention took only "
            "as long as its products and exponentials.",
        ),
        store.table(
            "Attention by kernel", ["tokens", "kernel", "ms", "× torch, float32"], by_kernel,
            "Milliseconds per document of the forward and backward pass of one layer, without "
            f"dropout. speed=fast uses torch's kernel, in float32 up to {kernels.LONG} tokens. One "
            "document or head at a time is torch's kernel on parts of the same input. Two heads "
            "per product need twice the operations in products of twice the width. Weights stored "
            "is torch's plain attention, which does not compute the weights a second time.",
        ),
    ]  # fmt: skip


if __name__ == "__main__":
    store.main(__file__, measure, tokens=[1024, 2048, 4096], rounds=5)
