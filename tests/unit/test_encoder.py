"""The encoder against nn.TransformerEncoder. Shapes: B documents, L tokens, d = 16, H = 4."""

from typing import Any

import pytest
import torch
from torch import nn

from posfuse.model.encoder import Encoder, mean_pool
from variants import TORCH_NAMES

D, H, FF, LAYERS = 16, 4, 32, 2


def twins(causal: bool, **kind: Any) -> tuple[Encoder, nn.TransformerEncoder]:
    layer = nn.TransformerEncoderLayer(D, H, FF, 0.1, batch_first=True, **kind)
    norm = nn.LayerNorm(D) if kind["norm_first"] else None
    theirs = nn.TransformerEncoder(layer, LAYERS, norm, enable_nested_tensor=False)
    ours = Encoder(D, H, LAYERS, FF, 0.1, causal=causal, **kind)
    torch.manual_seed(0)
    for parameter in theirs.parameters():
        nn.init.normal_(parameter, std=0.3)
    with torch.no_grad():
        for i, block in enumerate(ours.blocks):
            for mine, name in TORCH_NAMES.items():
                block.get_parameter(mine).copy_(theirs.layers[i].get_parameter(name))
        if norm:
            ours.norm.load_state_dict(theirs.norm.state_dict())
    return ours.eval(), theirs.eval()


@pytest.mark.parametrize("activation", ["gelu", "relu"])
@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("causal", [False, True])
def test_equals_nn_transformer_encoder(activation: str, norm_first: bool, causal: bool) -> None:
    """To the last bit where both use the same kernel of torch, which needs gradients: without
    them torch's encoder uses a fused one. Padding is after all valid tokens, so a causal encoder
    needs no mask for it."""
    ours, theirs = twins(causal, activation=activation, norm_first=norm_first)
    x = torch.randn(3, 7, D, generator=torch.Generator().manual_seed(1))
    future = nn.Transformer.generate_square_subsequent_mask(7) if causal else None
    for lengths in (torch.tensor([7, 7, 7]), torch.tensor([7, 3, 1])):
        padding = torch.arange(7) >= lengths[:, None]
        hidden = padding if padding.any() and not causal else None
        mine = ours(x, lengths)
        reference = theirs(x, future, src_key_padding_mask=hidden, is_causal=causal)
        atol = 1e-5 if causal else 0
        torch.testing.assert_close(mine[~padding], reference[~padding], rtol=0, atol=atol)


def test_mean_pool_by_hand_ignores_nan_at_padding() -> None:
    x = torch.tensor([[[1.0, 2], [3, 6], [torch.nan, torch.inf]], [[1, 1], [2, 2], [6, 6]]])
    assert mean_pool(x, torch.tensor([2, 3])).tolist() == [[2, 4], [3, 3]]


@pytest.mark.parametrize("rates", [{"dropout": 0.1}, {"dropout": 0.0, "attention_dropout": 0.5}])
def test_dropout_acts_in_training_only(rates) -> None:
    encoder = Encoder(D, H, 1, FF, **rates)
    x, lengths = torch.randn(2, 5, D), torch.tensor([5, 5])
    assert not torch.equal(encoder(x, lengths), encoder(x, lengths))
    encoder.eval()
    assert torch.equal(encoder(x, lengths), encoder(x, lengths))


def test_attention_dropout_follows_dropout_unless_set() -> None:
    assert Encoder(D, H, 1, FF, dropout=0.3).blocks[0].attention.dropout == 0.3
    assert Encoder(D, H, 1, FF, dropout=0.3, attention_dropout=0).blocks[0].attention.dropout == 0
