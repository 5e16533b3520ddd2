"""Chooses the precision for trainer.precision=fastest.

On a CPU it is measured, because the bfloat16 units of one model of CPU may or may not work, and
with some units products are faster in bfloat16 but attention is slower. The first run of a sweep
writes its choice into the sweep's folder. So all runs of a sweep whose models and texts have the
same size have the same precision, also if they resume on another machine or on a GPU.
"""

import logging
import math
import time
from functools import cache
from pathlib import Path
from typing import NamedTuple

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
CHOICE = ".bfloat16"  # beginning of the name of a file in the sweep's folder
NAMES = {FLOAT32: "float32", BFLOAT16: "bfloat16"}


class Shape(NamedTuple):
    """The size of a layer and of the documents that it reads."""

    d_model: int = 256
    n_heads: int = 8
    d_ff: int = 1024
    tokens: int = 512  # of a document

    def choice(self, sweep: Path) -> Path:
        """The file of a sweep's folder with the choice for models of this size."""
        return sweep / "-".join([CHOICE, *map(str, self)])


_log_once = cache(logging.getLogger(__name__).info)  # a process has many runs of a sweep


def precision_of(cfg: Config) -> str:
    """The precision of a run: the config's, or the choice for fastest."""
    if cfg.trainer.precision != FASTEST:
        return cfg.trainer.precision
    return fastest(cfg.trainer.accelerator, shape(cfg), Path(cfg.output_dir, cfg.sweep_id))


def stored(cfg: Config) -> str | None:
    """The sweep's choice for trainer.precision=fastest, without a measurement; None if it has none
    yet. For the process of a sweep, which may be on another machine than its runs."""
    path = shape(cfg).choice(Path(cfg.output_dir, cfg.sweep_id))
    return _read(path)[0] if path.exists() else None


def shape(cfg: Config) -> Shape:
    """The size of the config's model; for a pretrained model, which is not read yet, a usual
    size."""
    model, tokens = cfg.model, min(cfg.data.max_len, LONGEST)
    if model.d_model is None or model.n_heads is None or model.d_ff is None:
        return Shape(tokens=tokens)
    return Shape(model.d_model, model.n_heads, model.d_ff, tokens)


def fastest(accelerator: str, of: Shape, sweep: Path) -> str:
    """ "bf16-mixed" if bfloat16 is clearly faster than float32 for models of this size, else
    "32-true".

    The first call for a sweep's folder decides and writes its choice and reason there; later calls
    read them. The log gives the reason. Raises InputError if the file is damaged.
    """
    path = of.choice(sweep)
    sweep.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{path}.lock"):
        if not path.exists():
            is_faster, reason = _is_faster(accelerator, of)
            written = f"{BFLOAT16 if is_faster else FLOAT32} {reason}\n"
            part = path.with_name(f"{path.name}.part")  # `stored` reads the file without the lock
            part.write_text(written, encoding="utf-8")
            part.replace(path)
        choice, reason = _read(path)
    _log_once("trainer.precision=%s: %s, because %s", FASTEST, NAMES[choice], reason)
    return choice


def _read(path: Path) -> tuple[str, str]:
    """The choice in a file and its reason. Raises InputError if the file is damaged."""
    text = path.read_text(encoding="utf-8", errors="replace")
    choice, _, reason = text.strip().partition(" ")
    if choice not in NAMES or not reason:
        raise InputError(f"{path}: damaged; remove it, and the next run chooses again")
    return choice, reason


def _is_faster(accelerator: str, of: Shape) -> tuple[bool, str]:
    """True if bfloat16 is clearly faster on this machine's device, and the reason."""
    # Only existing devices; otherwise torch names the device that it was built for.
    present = torch.accelerator.current_accelerator(check_available=True)
    device = None if accelerator == "cpu" else present
    if device is not None and device.type != "cpu":
        has_units = device.type == "cuda" and torch.cuda.is_bf16_supported(
            including_emulation=False
        )
        return has_units, f"this GPU has {'' if has_units else 'no '}bfloat16 units"
    if of.d_model < SMALLEST:
        return False, f"a model of {of.d_model} features is too small to gain from bfloat16"
    ratio = speedup(of)
    how = "faster" if ratio >= FASTER else "slower" if ratio < 1 else "hardly faster"
    return ratio >= FASTER, f"bfloat16 is {how} on this CPU ({ratio:.1f}x)"


@torch.no_grad()
def speedup(of: Shape) -> float:
    """The speed-up of a layer's products and attention in bfloat16 over float32, with one thread.

    The two alternate, and the best time of each counts, because other work on the machine only adds
    time.
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
