"""The causal encoder and the language model: causality, other implementations, decoding."""

from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F

from posfuse.model.encoder import Encoder
from posfuse.model.fusion import Add
from posfuse.model.language_model import Cache, LanguageModel, looks_ahead
from posfuse.model.network import Backbone, initialize
from posfuse.model.positions import PositionSampler, as_tensor
from variants import (
    ENCODINGS,
    Bidirectional,
    make_attention,
    make_fusion,
    make_table,
    pairs,
    random_tensor,
    randomized,
)

IDS = torch.tensor([[2, 3, 4, 5, 6, 7, 8, 9], [9, 9, 3, 2, 5, 5, 4, 3]])
LENGTHS = torch.tensor([8, 8])


def language_model(
    fusion="add",
    encoding="sinusoidal",
    position=None,
    dropout=0.0,
    tied=False,
    sampler=None,
    **kind,
):
    """In double precision, with positions inside attention that matter; `position` replaces the
    encoding's, and `kind` has further options of the encoder."""
    position = position or make_attention(encoding)
    encoder = Encoder(8, 2, 2, 16, dropout, position=position, causal=True, **kind)
    table = make_table(encoding, 8, 12)
    backbone = Backbone(make_fusion(fusion, 8), table, encoder, sampler=sampler)
    model = LanguageModel(backbone, 20, dropout, tied)
    initialize(model, 0)
    randomized(model.encoder.positions)
    return model.double()


@pytest.mark.parametrize(("fusion", "encoding"), pairs("add", "sinusoidal"))
def test_it_trains_and_a_later_token_changes_no_earlier_logit(fusion, encoding):
    """Exactly: a future score of -inf has the weight 0."""
    changed = IDS.clone()
    changed[:, 5:] = torch.tensor([[11, 12, 13], [14, 15, 16]])
    model = language_model(fusion, encoding, dropout=0.5).train()
    logits = model(IDS[:, :-1], LENGTHS - 1)
    F.cross_entropy(logits.flatten(0, 1), IDS[:, 1:].flatten()).backward()
    assert all(p.grad.isfinite().all() for p in model.parameters())
    assert model.head.weight.grad.any()
    model.eval().requires_grad_(False)
    before, after = model(IDS, LENGTHS), model(changed, LENGTHS)
    assert torch.equal(before[:, :5], after[:, :5])
    assert not torch.allclose(before[:, 5:], after[:, 5:])
    cut = model(IDS[:, :5], LENGTHS.clamp(max=5))
    torch.testing.assert_close(cut, before[:, :5], rtol=0, atol=1e-12)
    assert not looks_ahead(model.float().train(), 8)
    assert model.training


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_in_training_too(encoding):
    """The kernels of training differ from those of evaluation."""
    for p in (0.0, 0.5):
        model = language_model("add", encoding, dropout=p).train()
        torch.manual_seed(0)
        model(IDS, LENGTHS)[:, 4].sum().backward()
        touched = model.embedding.weight.grad.abs().sum(1).nonzero().flatten().tolist()
        assert set(touched) <= {2, 3, 4, 5, 6, 9}, encoding  # tokens 0 to 4 of both rows
        assert 6 in touched or p


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("encoding", ENCODINGS)
@torch.no_grad()
def test_decoding_with_a_cache_equals_the_model(encoding, norm_first):
    for sampler in (None, PositionSampler(12, seed=1)):
        model = language_model("concat", encoding, norm_first=norm_first, sampler=sampler).eval()
        positions = as_tensor(model.sampler.outside_training(8), IDS)
        expected, cache = model(IDS, LENGTHS, positions), Cache(positions[:0])
        for start, end in pairwise((0, 3, 4, 6, 7, 8)):
            found = model.step(IDS[:, start:end], positions[start:end], cache)
            torch.testing.assert_close(found, expected[:, end - 1])
        prompt = plain = IDS[:, :3]
        at = as_tensor(model.sampler.outside_training(7), IDS[:, :7])
        for n in range(3, 7):
            plain = torch.cat((plain, model(plain, LENGTHS, at[:n])[:, -1:].argmax(-1)), 1)
        assert torch.equal(model.generate(prompt, 4), plain[:, 3:])


@torch.no_grad()
def test_greedy_decoding_reads_its_own_answers_and_the_given_questions():
    """Each row alone and without a cache; targets begin at other places and alternate with
    questions, as in associative recall."""
    is_target = torch.tensor([[0, 0, 1, 0, 1, 0, 1, 0], [0, 0, 0, 1, 1, 1, 0, 0]]).bool()
    for sampler in (None, PositionSampler(12, seed=1)):
        model = language_model("concat", "rope", sampler=sampler).eval()
        at = as_tensor(model.sampler.outside_training(8), IDS)
        expected = torch.zeros_like(IDS)
        for row, (ids, targets) in enumerate(zip(IDS.tolist(), is_target.tolist(), strict=True)):
            for place in range(7):
                read = torch.tensor([ids[: place + 1]])
                logits = model(read, torch.tensor([place + 1]), at[: place + 1])
                best = int(logits[0, -1].argmax())
                if targets[place]:
                    expected[row, place] = ids[place + 1] = best
        found = model.decode(IDS, is_target)
        assert torch.equal(found, expected)
        assert not torch.equal(found, model(IDS, LENGTHS).argmax(-1) * is_target)
    assert not model.decode(IDS, torch.zeros_like(is_target)).any()


def test_tied_logits_and_their_gradients_by_hand():
    model = language_model(tied=True).eval()
    assert model.head is None
    x, rows = random_tensor(3, 8), model.embedding.weight
    logits = model.logits(x)
    by_hand = torch.stack([(x * row).sum(-1) / 8**0.5 for row in rows], -1)
    torch.testing.assert_close(logits, by_hand)
    (gradient,) = torch.autograd.grad(logits.sum(), rows)
    torch.testing.assert_close(gradient, (x.sum(0) / 8**0.5).expand_as(rows))
    names = {name for name, _ in model.named_parameters()}
    assert names == {n for n, _ in language_model().named_parameters()} - {"head.weight"}


class Reads(Add):
    """E plus the token at another place: `source` gives it for the places 0 .. L - 1."""

    def __init__(self, source):
        super().__init__(8)
        self.source = source

    def project_tokens(self, tokens):
        places = torch.arange(tokens.shape[-2])
        return (tokens + tokens[..., self.source(places).clamp(max=len(places) - 1), :],)


@pytest.mark.parametrize(
    ("source", "is_ahead"),
    [
        (lambda i: i + 16, True),
        (lambda i: i + 1, True),
        (lambda i: 0 * i + 63, True),  # the last token
        (lambda i: i // 2 * 2 + 1, True),  # the end of a block of two
        (lambda i: i // 16 * 16 + 15, True),
        (lambda i: torch.where(i == 0, 1, i), True),  # one place alone
        (lambda i: torch.where(i == 62, 63, i), True),
        (lambda i: (i - 16).clamp(min=0), False),
        (lambda i: i // 16 * 16, False),
    ],
)
def test_an_operator_that_looks_ahead_is_found_at_every_distance(source, is_ahead):
    encoder = Encoder(8, 2, 1, 16, 0.0, causal=True)
    model = LanguageModel(Backbone(Reads(source), make_table("sinusoidal", 8, 64), encoder), 20)
    assert looks_ahead(model, 64) == is_ahead


@pytest.mark.parametrize("length", [1, 2, 3, 8])
def test_an_encoding_that_looks_ahead_is_found(length):
    assert looks_ahead(language_model(position=Bidirectional(8, 2, 12)), length) == (length > 1)


def test_an_encoder_that_sees_the_future_is_refused():
    backbone = Backbone(make_fusion("none", 8), None, Encoder(8, 2, 1, 16))
    with pytest.raises(ValueError, match="causal=True"):
        LanguageModel(backbone, 20)
