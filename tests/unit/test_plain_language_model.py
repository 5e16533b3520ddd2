"""The language model against benchmarks/plain_language_model.py, a GPT as nanoGPT describes it."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import plain_language_model as plain
from posfuse.config import OptimConfig
from posfuse.model.encoder import Encoder
from posfuse.model.language_model import LanguageModel
from posfuse.model.network import Backbone
from posfuse.training.optimizer import optimizer, rate_factor
from variants import make_fusion, make_table

D, HEADS, LAYERS, BLOCK = 16, 2, 2, 12
NAMES = {  # of the plain model -> of posfuse
    "positions.": "table.absolute", "norm.": "encoder.norm.", "blocks.": "encoder.blocks.",
    "qkv.": "attention.qkv_", "out.": "attention.out_", "up.": "linear1.", "down.": "linear2.",
}  # fmt: skip


def same_name(name):
    if name == "positions.weight":
        return "table.absolute"
    for old, new in NAMES.items():
        if name.startswith(old) or f".{old}" in name:
            name = name.replace(old, new)
    return name


@pytest.fixture
def pair():
    """A plain model and posfuse's with its weights. posfuse divides the logits by sqrt(d), so its
    embeddings are sqrt(d) times as large, and the token scale is 1 / sqrt(d)."""
    torch.manual_seed(0)
    gpt = plain.PlainLanguageModel(D, HEADS, LAYERS, BLOCK, bias=True)
    encoder = Encoder(
        D, HEADS, LAYERS, 4 * D, dropout=0.0, norm_first=True, causal=True,
    )  # fmt: skip
    backbone = Backbone(
        make_fusion("add", D), make_table("learned", D, BLOCK), encoder, token_scale=D**-0.5
    )
    model = LanguageModel(backbone, plain.BYTES, dropout=0.0, tied=True)
    own = {same_name(name): value.detach().clone() for name, value in gpt.named_parameters()}
    own["embedding.weight"] = own.pop("tokens.weight") * D**0.5
    assert own.keys() == dict(model.named_parameters()).keys()
    model.load_state_dict(own, strict=False)
    return gpt, model


def test_loss_and_gradients_are_those_of_the_plain_model(pair):
    gpt, model = pair
    text = np.random.default_rng(0).integers(0, 256, 500).astype(np.uint8)
    ids, targets = plain.random_windows(text, batch=3, block=BLOCK)
    logits, loss = gpt(ids, targets)
    loss.backward()
    ours = model(ids, torch.full((3,), BLOCK))
    torch.testing.assert_close(ours, logits)
    F.cross_entropy(ours.flatten(0, 1), targets.flatten()).backward()
    gradients = {same_name(name): p.grad for name, p in gpt.named_parameters()}
    gradients["embedding.weight"] = gradients.pop("tokens.weight") / D**0.5
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.grad, gradients[name], msg=name)


def test_the_recipe_decays_the_matrices_and_has_the_learning_rates_of_nanogpt(pair):
    gpt, model = pair
    optim = OptimConfig(
        name="adamw", lr=1e-3, weight_decay=plain.DECAY, weight_decay_of="matrices",
        schedule="cosine", warmup=plain.WARMUP, end_factor=plain.LAST,
    )  # fmt: skip
    ours = optimizer(model, model.parameters(), optim).param_groups
    sizes = {
        group["weight_decay"]: sum(p.numel() for p in group["params"])
        for group in plain.optimizer(gpt, optim.lr).param_groups
    }
    assert sizes == {g["weight_decay"]: sum(p.numel() for p in g["params"]) for g in ours}
    for step in range(500):
        rate = optim.lr * rate_factor(step, optim, 500)
        assert rate == pytest.approx(plain.learning_rate(step, 500, optim.lr), rel=1e-12)
