"""Checks of a network's parts before training: a part of the user's own may return values that
train, but mean nothing."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from posfuse.config import Config, longest
from posfuse.errors import ConfigError, own_line, reason
from posfuse.model.attention_encoding import AttentionEncoding
from posfuse.model.network import FusionTransformer

N_TOKENS = 4  # of the documents that the checks make


def check_parts(cfg: Config, network: FusionTransformer) -> None:
    """Raise ConfigError, which names the class and the fix, for a table, an operator or an encoding
    inside attention whose values cannot be used. Changes neither the network nor a generator."""
    modes = [(module, module.training) for module in network.modules()]
    network.eval()
    encoding, fusion = f"encoding={cfg.encoding.name}", f"fusion={cfg.fusion['name']}"
    is_random = cfg.encoding.positions == "randomized"
    n_positions = cfg.encoding.range if is_random else longest(cfg.data)
    try:
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            if network.fusion.uses_table:
                with _naming(f"{encoding}: {_kind(network.table)}.forward"):
                    _check_table(network, n_positions)
            with _naming(f"{fusion}: {_kind(network.fusion)}.merge"):
                _check_fusion(network)
            inside = network.encoder.positions[0]
            with _naming(f"{encoding}: {_kind(inside)}"):
                _check_attention(inside, n_positions)
    finally:
        for module, is_training in modes:
            module.training = is_training


def _kind(part: object) -> str:
    return type(part).__name__


@contextmanager
def _naming(part: str) -> Iterator[None]:
    """Raise ConfigError, which names the part, for any error of the block."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"{part} {error}") from error
    except Exception as error:
        place = f", {line}" if (line := own_line(error)) else ""
        why = f"{_kind(error)}: {reason(error)}{place}"
        raise ConfigError(f"{part} fails ({why}); correct it") from error


def _check_table(network: FusionTransformer, n_positions: int) -> None:
    table = _usable(network.table, network.embedding.weight.dtype)
    d_model = network.fusion.d_model
    if table.dim() != 2 or len(table) < n_positions or table.shape[1] != d_model:
        raise ConfigError(
            f"returns the shape {tuple(table.shape)}; return (max_len, d_model), here "
            f"({n_positions}, {d_model})"
        )


def _check_fusion(network: FusionTransformer) -> None:
    table = network.table()
    n_tokens = min(N_TOKENS, len(table)) if network.fusion.uses_table else N_TOKENS
    ids = torch.arange(1, n_tokens + 1)[None] % network.embedding.num_embeddings
    ids[:, n_tokens // 2 + 1 :] = 0  # padding
    tokens = network.tokens(ids)
    fused = _usable(lambda: network.fusion(tokens, table), tokens.dtype)
    alone = fused[:, : n_tokens // 2 + 1]
    again = network.fusion(tokens[:, : alone.shape[1]], table)
    if not torch.allclose(alone, again, rtol=1e-4, atol=1e-5):
        raise ConfigError(
            "depends on the padding after a document, and so on the other documents of its batch; "
            "compute the vector of a token from this token and its position"
        )


def _check_attention(encoding: AttentionEncoding, n_positions: int) -> None:
    if encoding.rows is not None and encoding.rows < n_positions:
        raise ConfigError(
            f"has rows = {encoding.rows} for {n_positions} positions; set rows to max_len"
        )
    n_heads, d_head = encoding.n_heads, encoding.d_head
    at = torch.arange(min(n_heads + 1, n_positions))  # no two sizes of a tensor are equal
    draws = torch.Generator().manual_seed(0)
    q, k = torch.randn(2, 1, n_heads, len(at), d_head, generator=draws)
    weights = _usable(lambda: encoding.weights(q, k, None, at, at), q.dtype)
    if weights.shape != (1, n_heads, len(at), len(at)):
        raise ConfigError(
            "changes the shape of the scores; return (B, H, L, D) from `turn` and (H, Q, L) or (B, "
            "H, Q, L) from `extra`"
        )
    if encoding.learned:
        return
    with torch.enable_grad():
        extra = encoding.extra(q * d_head**-0.5, at, at)
    if extra is None:
        return
    bias = encoding.bias(at)  # what training adds
    is_same = bias is not None and torch.allclose(extra.detach(), bias.to(extra.dtype))
    if extra.requires_grad or not is_same:
        raise ConfigError(
            "has parameters in `extra`, or reads q there, but `learned` is False; set learned = "
            "True in the class"
        )


def _usable(call: Callable[[], Any], dtype: torch.dtype) -> Tensor:
    """The result of the call. Raises ConfigError unless it is a tensor of this type with finite
    values, and the same in a second call."""
    value = call()
    if not isinstance(value, Tensor):
        raise ConfigError("does not return a tensor; return one")
    if value.dtype != dtype:
        raise ConfigError(f"returns values of {value.dtype}; convert them to {dtype}")
    if not value.isfinite().all():
        raise ConfigError(
            "returns values that are not finite before training; correct it, or the initial values "
            "in reset_parameters"
        )
    if not torch.equal(value, call()):
        raise ConfigError(
            "returns other values in a second call; draw random numbers only in training, as "
            "nn.Dropout does"
        )
    return value
