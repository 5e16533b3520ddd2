"""A folded model has the outputs of its origin, without its embeddings and projections."""

import pytest
import torch
from torch import nn

from posfuse.model.fusion import Add, Fusion
from posfuse.model.network import Backbone, PositionClassifier
from recipes import blocks
from variants import OPERATORS, batch_of, make_network, pairs, randomized

BATCH = batch_of([3, 4, 5, 6, 7, 8, 9, 2, 1, 3, 4, 5], [9, 8, 7, 6, 5])  # the whole table; padding
IDS, LENGTHS = BATCH.ids, BATCH.lengths


def network(fusion, encoding="sinusoidal", **options):
    return randomized(make_network(fusion, encoding, **options).double().eval(), 0.5)


def check_equal(folded, origin, kind=torch.float64):
    atol = 1e-10 if kind == torch.float64 else 1e-5
    folded, origin = folded.to(kind), origin.to(kind)
    for n, offset in ((12, 0), (5, 0), (5, 7), (1, 11)):
        given = IDS[:, :n], LENGTHS.clamp(max=n), offset
        torch.testing.assert_close(folded(*given), origin(*given), rtol=0, atol=atol)


@pytest.mark.parametrize(("name", "encoding"), pairs("gate_scalar", "sinusoidal"))
@pytest.mark.parametrize("norm", ["none", "layer"])
@torch.no_grad()
def test_a_folded_model_gives_the_logits_of_its_origin(name, encoding, norm):
    origin = network(name, encoding, fused_norm=norm)
    check_equal(origin.fold(), origin)
    ids, positions = torch.tensor([3, 9, 4, 8]), torch.tensor([0, 4, 1, 11])  # a packed batch
    fused = origin.fuse(ids, positions)
    torch.testing.assert_close(origin.fold().fuse(ids, positions), fused, rtol=0, atol=1e-12)
    check_equal(origin.fold(), origin, torch.float32)


class Doubled(Add):
    def forward(self, tokens, table, positions=0):
        return 2 * super().forward(tokens, table, positions)


class Smoothed(Add):
    """The neighbours of a word are those in its document, not those in the vocabulary."""

    def project_tokens(self, tokens):
        return (tokens + tokens.roll(1, -2) / 2,)


class Unpooled(PositionClassifier):
    def classify(self, fused, lengths, positions=0):
        return self.head(fused[:, 0])


@pytest.mark.parametrize(
    ("own", "message"),
    [(Doubled, "Doubled has its own forward"), (Unpooled, "Unpooled has its own classify"),
     (Smoothed, r"Smoothed\.project_tokens mixes words")],
)  # fmt: skip
def test_a_network_that_reads_in_another_way_is_not_folded(own, message):
    origin = network("add")
    (origin.fusion if issubclass(own, Add) else origin).__class__ = own
    with pytest.raises(ValueError, match=rf"^{message}, which a folded"):
        origin.fold()


def test_a_document_without_words_counts_as_one_padding():
    origin = network("gate_scalar")
    given = IDS[:, :3].clone().index_fill_(0, torch.tensor([1]), 0), torch.tensor([3, 0])
    torch.testing.assert_close(origin.fold()(*given), origin(*given), rtol=0, atol=1e-10)


# How many numbers are stored per word and per position, with d = 8, where it is not 8 each.
STORED = {
    "none": ([8], []),
    "gate_constant": ([8], [1, 8]),
    "gate_cnn": ([8], [1, 8]),
    "gate_scalar": ([8, 1], [1, 8]),
    "gate_feature": ([8, 8], [8, 8]),
    "gate_mlp": ([8, 8], [8, 8]),
}


def test_the_shapes_of_the_stored_parts():
    for name in OPERATORS:
        words, positions = STORED.get(name.removesuffix("_linear_start"), ([8], [8]))
        folded = network(name).fold()
        assert [tuple(part.shape) for part in folded.words] == [(20, k) for k in words], name
        assert [tuple(part.shape) for part in folded.positions] == [(12, k) for k in positions]


@pytest.mark.parametrize("name", OPERATORS)
def test_folding_shares_nothing_with_its_origin(name):
    origin = network(name, "learned", token_scale="learned").train()
    before = {key: value.clone() for key, value in origin.state_dict().items()}
    folded = origin.fold()
    logits = folded(IDS, LENGTHS)
    for parameter in origin.parameters():
        assert parameter.requires_grad
        parameter.data.add_(1)
    assert torch.equal(folded(IDS, LENGTHS), logits)
    for parameter in folded.parameters():
        parameter.data.zero_()
    assert all(torch.equal(origin.state_dict()[key], before[key] + 1) for key in before)
    assert origin.training


def test_a_folded_model_is_for_inference_alone():
    folded = network("concat").train().fold()
    assert not any(module.training for module in folded.modules())
    assert not any(parameter.requires_grad for parameter in folded.parameters())
    assert folded.eval() is folded
    with pytest.raises(ValueError, match="train its origin, then fold again"):
        folded.train()


def test_the_operator_in_the_docs_folds():
    names = {"Fusion": Fusion, "nn": nn}
    exec(blocks("docs/folding.md")[2], names)
    given = network("add")
    operator = names["Bilinear"](8)
    backbone = Backbone(operator, given.table, given.encoder)
    origin = PositionClassifier(backbone, 20, 3).double().eval()
    folded = origin.fold()
    check_equal(folded, origin)
    expected = 8**0.5 * origin.embedding.weight @ operator.linear.weight.T
    torch.testing.assert_close(folded.words[0].data, expected)
