"""Chooses the precision for trainer.precision=fastest.

On a CPU it is measured, since the bfloat16 units of the same model of CPU may or may not work, and
with some units products are faster in bfloat16 but attention is slower. The first run of a sweep
measures and writes the result into the sweep's folder. All runs of a sweep whose models and texts
have the same size then have the same precision, also when they resume on another machine.
"""

import logging
import math
import time
from dataclasses import astuple, dataclass
from functools import cache
from pathlib import Path

import torch
import torch.nn.functional as F
from filelock import FileLock

from posfuse.config import Config
from posfuse.errors import InputError
from posfuse.process import environment

FASTEST, FLOAT32, BFLOAT16 = "fastest", "32-true", "bf16-mixed"
FASTER = 1.2  # required speed-up of a layer in bfloat16: a step also converts and rounds
SMALLEST = 128  # features of a model whose steps become faster
TOKENS, ROUNDS = 2048, 5  # of a measurement; at least one document
LONGEST = 4096  # tokens of a measured document
RATIO = ".bfloat16"  # the beginning of a file's name in the sweep's folder


@dataclass(frozen=True)
class Shape:
    """The size of a layer and of the documents that it reads."""

    d_model: int = 256
    n_heads: int = 8
    d_ff: int = 1024
    tokens: int = 512  # of a document


_log_once = cache(logging.getLogger(__name__).info)  # a process has many runs of a sweep


def chosen(cfg: Config) -> str:
    """The precision of a run: the config's own, or the one chosen for fastest."""
    if cfg.trainer.precision != FASTEST:
        return cfg.trainer.precision
    return fastest(cfg.trainer.accelerator, shape(cfg), Path(cfg.output_dir, cfg.sweep_id))


def shape(cfg: Config) -> Shape:
    """The size of the config's model; of a pretrained one, which is not read yet, a usual size."""
    model, tokens = cfg.model, min(cfg.data.max_len, LONGEST)
    if model.d_model is None or model.n_heads is None or model.d_ff is None:
        return Shape(tokens=tokens)
    return Shape(model.d_model, model.n_heads, model.d_ff, tokens)


def fastest(accelerator: str, of: Shape, sweep: Path) -> str:
    """ "bf16-mixed" if bfloat16 is clearly faster than float32 for models of this size, else
    "32-true"; the same on each call for a sweep's folder. The log gives the reason."""
    # Of the devices that exist; otherwise torch names the one that it was built for.
    found = torch.accelerator.current_accelerator(check_available=True)
    device = None if accelerator == "cpu" else found
    if device is not None and device.type != "cpu":
        is_faster = device.type == "cuda" and torch.cuda.is_bf16_supported(
            including_emulation=False
        )
        reason = f"this GPU has {'' if is_faster else 'no '}bfloat16 units"
    elif of.d_model < SMALLEST:
        is_faster = False
        reason = f"a model of {of.d_model} features is too small to gain from bfloat16"
    else:
        ratio = _ratio(sweep, of)
        is_faster = ratio >= FASTER
        how = "faster" if is_faster else "slower" if ratio < 1 else "hardly faster"
        reason = f"bfloat16 is {how} on this CPU ({ratio:.1f}x)"
    name = "bfloat16" if is_faster else "float32"
    _log_once("trainer.precision=%s: %s, because %s", FASTEST, name, reason)
    return BFLOAT16 if is_faster else FLOAT32


def _ratio(sweep: Path, of: Shape) -> float:
    """The ratio in the sweep's folder, measured if the file is missing."""
    path = sweep / "-".join([RATIO, *map(str, astuple(of))])
    sweep.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{path}.lock"):
        if not path.exists():
            path.write_text(f"{measured(of)}\n")
        try:
            ratio = float(path.read_text())
        except ValueError:
            ratio = math.nan
    if not 0 < ratio < math.inf:
        raise InputError(f"{path}: damaged; remove it, and the next run measures again")
    return ratio


@torch.no_grad()
def measured(of: Shape) -> float:
    """How many times as fast as in float32 a layer's products and attention are in bfloat16, with
    one thread.

    The two alternate, and the best time of each counts: other work on the machine only adds time.
    """
    environment.do_without_broken_amx()  # must precede the first product of a process
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    documents = max(1, TOKENS // of.tokens)
    x = torch.randn(documents * of.tokens, of.d_model)
    # All products of a layer: q, k, v and out; up and down.
    weight = torch.randn(of.d_model, 4 * of.d_model + 2 * of.d_ff)
    heads = torch.randn(documents, of.n_heads, of.tokens, of.d_model // of.n_heads)
    best = {torch.float32: math.inf, torch.bfloat16: math.inf}
    for turn in range(ROUNDS + 1):
        for kind in best:
            tokens, weights, head = x.to(kind), weight.to(kind), heads.to(kind)
            start = time.perf_counter()
            tokens @ weights
            F.scaled_dot_product_attention(head, head, head)
            if turn:  # the first product of a kind prepares the later ones
                best[kind] = min(best[kind], time.perf_counter() - start)
    torch.set_num_threads(threads)
    return best[torch.float32] / best[torch.bfloat16]
