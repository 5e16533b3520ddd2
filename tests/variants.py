"""The operators and encodings in conf/, built small; a new YAML file is found automatically."""

from typing import Any

import torch
import torch.nn.functional as F
from hydra.utils import get_class
from omegaconf import OmegaConf

from posfuse.config import CONF_DIR
from posfuse.data.batching import Batch
from posfuse.model.attention_encoding import AttentionEncoding
from posfuse.model.dropout import Draws, new_seed, zero_
from posfuse.model.encoder import Encoder
from posfuse.model.encoding import Table
from posfuse.model.fusion import Fusion
from posfuse.model.kernels import _blocks
from posfuse.model.network import Backbone, PositionClassifier, initialize


def read_group(group: str) -> dict[str, Any]:
    """File stem -> content of each conf/<group>/*.yaml."""
    return {path.stem: OmegaConf.load(path) for path in sorted((CONF_DIR / group).glob("*.yaml"))}


OPERATORS, ENCODINGS = read_group("fusion"), read_group("encoding")
HOST = ENCODINGS.pop("host")  # a table of zeros without a pretrained model: test_hosts.py


def build(node: Any, **arguments: Any) -> Any:
    named = ("name", "_target_")
    options = {k: v for k, v in node.items() if k not in named and v is not None}
    return get_class(node["_target_"])(**{**options, **arguments})


def make_fusion(name: str, d_model: int, **options: Any) -> Fusion:
    return build(OPERATORS[name], d_model=d_model, **options)


def make_table(name: str, d_model: int, max_len: int) -> Table:
    return build(ENCODINGS[name].table, d_model=d_model, max_len=max_len)


def make_attention(name: str) -> AttentionEncoding | None:
    """For d=8, H=2 and 12 tokens; None where the encoding has no attention half."""
    node = ENCODINGS[name].get("attention")
    return build(node, d_model=8, n_heads=2, max_len=12) if node else None


def make_network(
    fusion: str = "add", encoding: str = "sinusoidal", seed: int = 0, **options: Any
) -> PositionClassifier:
    """A network of d=8, H=2, two blocks, V=20, C=3, for documents of at most 12 tokens."""
    dropout = options.pop("dropout", 0.1)
    backbone = Backbone(
        make_fusion(fusion, 8),
        make_table(encoding, 8, 12),
        Encoder(8, n_heads=2, n_layers=2, d_ff=16, position=make_attention(encoding)),
        **options,
    )
    network = PositionClassifier(backbone, vocabulary_size=20, n_classes=3, dropout=dropout)
    initialize(network, seed)
    return network


def random_tensor(*shape: int, seed: int = 0) -> torch.Tensor:
    """N(0, 1) in float64, of its own generator."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def dense_weights(model: PositionClassifier, batch: Batch, layer: int) -> torch.Tensor:
    """The weights (B, H, L, L) of the kernel that training uses: with the value 1 at one key and 0
    at the others, attention returns the weight of that key."""
    attention, seen = model.encoder.blocks[layer].attention, []
    with attention.register_forward_pre_hook(lambda module, given: seen.append(given)):
        model(batch.ids, batch.lengths)
    x, mask, (encoding, positions, bias) = seen[0]
    q, k, v = attention.heads(x)
    columns = []
    for key in range(batch.ids.shape[1]):
        one = F.one_hot(torch.tensor(key), batch.ids.shape[1]).to(v)[:, None].expand_as(v)
        columns.append(encoding(q, k, one, mask, positions, bias, 0.0)[..., 0])
    return torch.stack(columns, -1)


def drawn_masks(shape, p, causal=False):
    """The rescaled dropout masks (B, H, L, L), float64, that block attention draws next for a q of
    this shape (B, H, L, D). A causal block draws for the keys up to its last query."""
    masks = torch.ones(*shape[:3], shape[2], dtype=torch.float64)
    if p:
        draws = Draws(p, new_seed(), masks.device)
        for documents, queries in _blocks(shape, masks.device):
            block = masks[documents, :, queries, : queries.stop if causal else None]
            ones = torch.ones(block.shape, dtype=torch.float64)
            block[...] = zero_(ones, draws.next(block)) / (1 - p)
    return masks
