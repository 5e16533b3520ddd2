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
from variants import TORCH_NAMES

WORDS, CLASSES, MAX_LEN, D = 40, 5, 24, 16
SMALL = [f"model.d_model={D}", "model.n_heads=4", "model.n_layers=2", "model.d_ff=32"]
SMALL += [f"data.max_len={MAX_LEN}"]
OPERATORS = ["add", "mul", "concat", "mlp", "gate_scalar", "gate_feature", "gate_mlp"]
ENCODINGS = ["sinusoidal", "rope", "relative"]
LENGTHS = torch.tensor([24, 9, 1, 17])


class Reference(nn.Module):
    """Embedding times sqrt(d), fusion with an absolute table, nn.TransformerEncoder, mean over
    the positions that are not padding, linear head."""

    def __init__(self, on_arxiv: bool, fusion: str, encoding: str) -> None:
        super().__init__()
        d, self.fusion = D, fusion
        self.embedding = nn.Embedding(WORDS, d, padding_idx=0)
        angles = torch.arange(MAX_LEN)[:, None] / 10000 ** (torch.arange(0, d, 2) / d)
        table = torch.randn(MAX_LEN, d)
        if encoding == "sinusoidal":
            table[:, 0::2], table[:, 1::2] = angles.sin(), angles.cos()
        elif encoding == "rope":
            table = torch.cat((angles.sin(), angles.cos()), dim=1)
        self.table = nn.Parameter(table)
        self.joint: nn.Module | None = None
        if fusion in ("mlp", "gate_mlp"):  # their MLP-Gate is this MLP
            self.joint = nn.Sequential(nn.Linear(2 * d, d), nn.ReLU(), nn.Linear(d, d))
        elif fusion not in ("add", "mul"):
            self.joint = nn.Linear(2 * d, 1 if fusion == "gate_scalar" and on_arxiv else d)
        activation = "relu" if on_arxiv else "gelu"
        layer = nn.TransformerEncoderLayer(d, 4, 32, 0.1, activation, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
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
        E = self.embedding(ids) * math.sqrt(D)
        x = self.fuse(E, self.table[: ids.shape[1]].expand_as(E))
        x = self.encoder(x, src_key_padding_mask=ids == 0)
        valid = (ids != 0)[..., None].float()
        pooled = (x * valid).sum(1) / valid.sum(1)
        return self.head(self.head_dropout(pooled))


def weights_of(reference: Reference) -> dict[str, Tensor]:
    """The reference's weights under our names; the table under the names of two encodings."""
    joint = reference.joint
    found = {"embedding.weight": reference.embedding.weight}
    found |= {"table.absolute": reference.table, "table.relative.absolute": reference.table}
    found |= {"head.weight": reference.head.weight, "head.bias": reference.head.bias}
    if joint is not None:
        layers = [*joint] if isinstance(joint, nn.Sequential) else [joint]
        first, last = layers[0], layers[-1]
        own = dict(zip(("weight_token", "weight_position"), first.weight.chunk(2, 1), strict=True))
        own |= {"bias": first.bias, "weight_out": last.weight, "bias_out": last.bias}
        kind = "fusion.mlp" if first is not last else "fusion"
        found |= {f"{kind}.{name}": value for name, value in own.items()}
    for i, layer in enumerate(reference.encoder.layers):
        for mine, name in TORCH_NAMES.items():
            found[f"encoder.blocks.{i}.{mine}"] = layer.get_parameter(name)
    return found


# Operators and encodings do not interact, but some operators differ between the two notebooks.
MODELS = [("agnews", fusion, "learned") for fusion in OPERATORS]
MODELS += [("arxiv", fusion, "sinusoidal") for fusion in OPERATORS]
MODELS += [("agnews", "add", encoding) for encoding in ENCODINGS]


@pytest.mark.parametrize(("data", "fusion", "encoding"), MODELS)
@torch.no_grad()
def test_logits_equal_those_of_the_notebooks_model(data: str, fusion: str, encoding: str) -> None:
    """With the same weights, on documents with padding."""
    protocol = [f"data={data}", f"protocol={data}", "fidelity=notebook"]
    cfg = checked(composed(*protocol, f"fusion={fusion}", f"encoding={encoding}", *SMALL))
    network = build_network(cfg, WORDS, CLASSES).eval()
    torch.manual_seed(0)
    reference = Reference(data == "arxiv", fusion, encoding).eval()
    for name, parameter in reference.named_parameters():
        if "bias" in name:  # torch starts those of attention at zero
            nn.init.uniform_(parameter, -0.5, 0.5)
    weights = weights_of(reference)
    for name, parameter in network.named_parameters():
        parameter.copy_(weights[name])
    ids = torch.randint(1, WORDS, (len(LENGTHS), MAX_LEN))
    ids[torch.arange(MAX_LEN) >= LENGTHS[:, None]] = 0
    assert network.dropout.p == reference.head_dropout.p
    torch.testing.assert_close(network(ids, LENGTHS), reference(ids), rtol=0, atol=1e-5)
