"""With fidelity=notebook the network computes what the authors' notebooks compute.

The reference below is written from the description of their code, on torch's own layers; its
weights are copied into the network.
"""

import math

import pytest
import torch
from torch import Tensor, nn

from posfuse.runs.checks import checked
from posfuse.training.build import build_network
from small_runs import composed

WORDS, CLASSES, MAX_LEN = 40, 5, 24
SMALL = ["model.d_model=16", "model.n_heads=4", "model.n_layers=2", "model.d_ff=32"]
SMALL += [f"data.max_len={MAX_LEN}"]
OPERATORS = ["add", "mul", "concat", "mlp", "gate_scalar", "gate_feature", "gate_mlp"]
ENCODINGS = ["sinusoidal", "rope", "relative"]
LENGTHS = torch.tensor([24, 9, 1, 17])


class Reference(nn.Module):
    """Embedding times sqrt(d), fusion with an absolute table, nn.TransformerEncoder, mean over
    the positions that are not padding, linear head."""

    def __init__(self, d: int, heads: int, layers: int, ff: int, on_arxiv: bool, fusion: str,
                 encoding: str) -> None:  # fmt: skip
        super().__init__()
        self.d, self.fusion = d, fusion
        self.embedding = nn.Embedding(WORDS, d, padding_idx=0)
        angles = torch.arange(MAX_LEN)[:, None] / 10000 ** (torch.arange(0, d, 2) / d)
        table = torch.empty(MAX_LEN, d)
        if encoding == "sinusoidal":
            table[:, 0::2], table[:, 1::2] = angles.sin(), angles.cos()
        elif encoding == "rope":
            table = torch.cat((angles.sin(), angles.cos()), dim=1)
        else:
            nn.init.normal_(table)
        self.table = nn.Parameter(table)
        if fusion == "concat":
            self.joint: nn.Module = nn.Linear(2 * d, d)
        elif fusion in ("mlp", "gate_mlp"):  # their MLP-Gate is this MLP
            self.joint = nn.Sequential(nn.Linear(2 * d, d), nn.ReLU(), nn.Linear(d, d))
        elif fusion == "gate_scalar" and on_arxiv:
            self.joint = nn.Linear(2 * d, 1)
        elif fusion in ("gate_scalar", "gate_feature"):
            self.joint = nn.Linear(2 * d, d)
        activation = "relu" if on_arxiv else "gelu"
        layer = nn.TransformerEncoderLayer(d, heads, ff, 0.1, activation, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head_dropout = nn.Dropout(0.0 if on_arxiv else 0.1)
        self.head = nn.Linear(d, CLASSES)

    def fuse(self, E: Tensor, P: Tensor) -> Tensor:
        if self.fusion == "add":
            return E + P
        if self.fusion == "mul":
            return E * P
        joined = self.joint(torch.cat((E, P), dim=-1))
        if self.fusion in ("concat", "mlp", "gate_mlp"):
            return joined
        gate = torch.sigmoid(joined)
        return gate * E + (1 - gate) * P

    def forward(self, ids: Tensor) -> Tensor:
        """ids (B, L), 0 is padding -> logits (B, C)."""
        E = self.embedding(ids) * math.sqrt(self.d)
        x = self.fuse(E, self.table[: ids.shape[1]].expand_as(E))
        x = self.encoder(x, src_key_padding_mask=ids == 0)
        valid = (ids != 0)[..., None].float()
        pooled = (x * valid).sum(1) / valid.sum(1)
        return self.head(self.head_dropout(pooled))


def weights_for(network: nn.Module, reference: Reference) -> dict[str, Tensor]:
    """The reference's weights under the network's names."""
    d, found = reference.d, {"embedding.weight": reference.embedding.weight}
    for name in ("absolute", "relative.absolute"):
        found[f"table.{name}"] = reference.table
    if reference.fusion in ("mlp", "gate_mlp"):
        first, _, second = reference.joint
        halves = {"weight_token": first.weight[:, :d], "weight_position": first.weight[:, d:]}
        halves |= {"bias": first.bias, "weight_out": second.weight, "bias_out": second.bias}
        found |= {f"fusion.mlp.{name}": value for name, value in halves.items()}
    elif reference.fusion not in ("add", "mul"):
        joint = reference.joint
        found["fusion.weight_token"] = joint.weight[:, :d]
        found["fusion.weight_position"] = joint.weight[:, d:]
        found["fusion.bias"] = joint.bias
    for i, layer in enumerate(reference.encoder.layers):
        attention = layer.self_attn
        own = {"attention.qkv_weight": attention.in_proj_weight}
        own |= {"attention.qkv_bias": attention.in_proj_bias}
        own |= {"attention.out_weight": attention.out_proj.weight}
        own |= {"attention.out_bias": attention.out_proj.bias}
        for part in ("linear1", "linear2", "norm1", "norm2"):
            for name, value in getattr(layer, part).named_parameters():
                own[f"{part}.{name}"] = value
        found |= {f"encoder.blocks.{i}.{name}": value for name, value in own.items()}
    found |= {"head.weight": reference.head.weight, "head.bias": reference.head.bias}
    names = {name for name, _ in network.named_parameters()}
    assert names <= set(found)  # every parameter of the network gets a value
    return {name: value for name, value in found.items() if name in names}


def difference(data: str, fusion: str, encoding: str) -> float:
    """The largest difference of a logit, with the same weights, on documents with padding."""
    protocol = [f"data={data}", f"protocol={data}", "fidelity=notebook"]
    overrides = [*protocol, f"fusion={fusion}", f"encoding={encoding}", *SMALL]
    cfg = checked(composed(*overrides))
    network = build_network(cfg, WORDS, CLASSES).eval()
    torch.manual_seed(0)
    reference = Reference(16, 4, 2, 32, data == "arxiv", fusion, encoding).eval()
    with torch.no_grad():
        for name, parameter in reference.named_parameters():
            if "bias" in name:  # torch starts those of attention at zero
                nn.init.uniform_(parameter, -0.5, 0.5)
        network.load_state_dict(weights_for(network, reference), strict=False)
        ids = torch.randint(1, WORDS, (len(LENGTHS), MAX_LEN))
        ids[torch.arange(MAX_LEN) >= LENGTHS[:, None]] = 0
        assert network.dropout.p == reference.head_dropout.p
        return (network(ids, LENGTHS) - reference(ids)).abs().max().item()


# Operators and encodings do not interact, but some operators differ between the two notebooks.
MODELS = [("agnews", fusion, "learned") for fusion in OPERATORS]
MODELS += [("arxiv", fusion, "sinusoidal") for fusion in OPERATORS]
MODELS += [("agnews", "add", encoding) for encoding in ENCODINGS]


@pytest.mark.parametrize(("data", "fusion", "encoding"), MODELS)
def test_logits_equal_those_of_the_notebooks_model(data: str, fusion: str, encoding: str) -> None:
    assert difference(data, fusion, encoding) < 1e-5
