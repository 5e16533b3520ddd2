"""The operators and encodings in conf/, built small; a new YAML file is found automatically."""

from typing import Any

import torch
import torch.nn.functional as F
from hydra.utils import get_class
from omegaconf import OmegaConf
from torch import nn

from posfuse.config import CONF_DIR, OptimConfig
from posfuse.data.batching import Batch
from posfuse.model.attention_encoding import AttentionEncoding
from posfuse.model.dropout import Draws, new_seed, zero_
from posfuse.model.encoder import Encoder
from posfuse.model.encoding import Table
from posfuse.model.fusion import Fusion
from posfuse.model.kernels import _blocks
from posfuse.model.network import Backbone, PositionClassifier, initialize
from posfuse.training.classifier import Classifier

# The parameters of nn.TransformerEncoderLayer by the names in our blocks.
TORCH_NAMES = {
    "attention.qkv_weight": "self_attn.in_proj_weight",
    "attention.qkv_bias": "self_attn.in_proj_bias",
    "attention.out_weight": "self_attn.out_proj.weight",
    "attention.out_bias": "self_attn.out_proj.bias",
    **{f"{m}.{p}": f"{m}.{p}" for m in ("linear1", "linear2", "norm1", "norm2")
       for p in ("weight", "bias")},
}  # fmt: skip


OPERATORS, ENCODINGS = (  # file stem -> content of each YAML file
    {path.stem: OmegaConf.load(path) for path in sorted((CONF_DIR / group).glob("*.yaml"))}
    for group in ("fusion", "encoding")
)
HOST = ENCODINGS.pop("host")  # a table of zeros without a pretrained model: test_hosts.py
# The encodings with an attention half.
INSIDE = [name for name, node in ENCODINGS.items() if node.get("attention")]


def pairs(operator: str, encoding: str) -> list[tuple[str, str]]:
    """Operators and encodings do not interact: each of them with this one of the others."""
    return [(name, encoding) for name in OPERATORS] + [(operator, name) for name in ENCODINGS]


def build(node: Any, **arguments: Any) -> Any:
    named = ("name", "_target_")
    options = {k: v for k, v in node.items() if k not in named and v is not None}
    return get_class(node["_target_"])(**{**options, **arguments})


def make_fusion(name: str, d_model: int, **options: Any) -> Fusion:
    return build(OPERATORS[name], d_model=d_model, **options)


def make_table(name: str, d_model: int, max_len: int) -> Table:
    return build(ENCODINGS[name].table, d_model=d_model, max_len=max_len)


def make_attention(name: str, max_len: int = 12) -> AttentionEncoding | None:
    """For d=8 and H=2; None where the encoding has no attention half."""
    node = ENCODINGS[name].get("attention")
    return build(node, d_model=8, n_heads=2, max_len=max_len) if node else None


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


class Bidirectional(AttentionEncoding):
    """Ignores that attention must be causal."""

    def forward(self, q, k, v, mask, positions, bias, p, causal):
        return super().forward(q, k, v, mask, positions, bias, p, False)


def random_tensor(*shape: int, seed: int = 0) -> torch.Tensor:
    """N(0, 1) in float64, of its own generator."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def randomized(module: nn.Module, scale: float = 1.0) -> nn.Module:
    """The module with parameters from N(0, scale^2), so that no gate is near 0.5 and no two
    positions are alike."""
    for i, parameter in enumerate(module.parameters()):
        parameter.data = scale * random_tensor(*parameter.shape, seed=i).to(parameter)
    return module


def batch_of(*documents: list[int]) -> Batch:
    """A padded batch; its labels are 0, 1, 2, 0 and so on."""
    lengths, index = torch.tensor([*map(len, documents)]), torch.arange(len(documents))
    ids = nn.utils.rnn.pad_sequence([*map(torch.tensor, documents)], batch_first=True)
    return Batch(ids, index % 3, lengths, index, int(lengths.sum()))


def training_step(monkeypatch, network, batch, seed=0, step=0, rank=0) -> torch.Tensor:
    """The loss of a training step of a run with this seed."""
    monkeypatch.setattr(Classifier, "global_step", step)
    monkeypatch.setattr(Classifier, "global_rank", rank)
    monkeypatch.setattr(Classifier, "log", lambda *args, **kwargs: None)
    return Classifier(network, OptimConfig(), 3, seed).train().training_step(batch, 0)


def check_equal(y, expected, inputs, atol=1e-12):
    """The outputs and their gradients by the inputs are equal."""
    weights = random_tensor(*y.shape, seed=7)
    both = [
        (out, *torch.autograd.grad((out * weights).sum(), inputs, materialize_grads=True))
        for out in (y, expected)
    ]
    for mine, other in zip(*both, strict=True):
        torch.testing.assert_close(mine, other, rtol=0, atol=atol)


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
