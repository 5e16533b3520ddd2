"""Masked pretraining: which tokens are masked and how, and the model that predicts them."""

import pandas as pd
import pytest
import torch
import torch.nn.functional as F

from posfuse.data.batching import Batch
from posfuse.model.masked import mask
from posfuse.model.network import initialize
from posfuse.runs.checks import checked
from posfuse.training.build import build_backbone, build_data, build_network
from posfuse.training.masked_pretraining import MaskedTokens, MaskedWords, first_phase
from small_corpora import write_splits
from small_runs import composed

UNKNOWN, WORDS = 1, 50
LENGTHS = torch.tensor([40, 7, 1])
VALID = torch.arange(40) < LENGTHS[:, None]
IDS = torch.randint(2, WORDS, (3, 40), generator=torch.Generator().manual_seed(0)) * VALID
IDS[0, 5] = UNKNOWN
BATCH = Batch(IDS, torch.zeros(3), LENGTHS, torch.arange(3), 48)


def test_the_masked_share_and_its_three_kinds():
    ids = torch.randint(2, 10_000, (200, 500), generator=torch.Generator().manual_seed(1))
    read, masked = mask(ids, torch.full((200,), 500), 0.15, 10_000, UNKNOWN, 0)
    assert masked.double().mean() == pytest.approx(0.15, abs=0.005)
    is_replaced = (read != ids) & (read != UNKNOWN)
    kinds = (read == UNKNOWN)[masked], (read == ids)[masked], is_replaced[masked]
    shares = [kind.double().mean().item() for kind in kinds]
    assert shares == pytest.approx([0.8, 0.1, 0.1], abs=0.01)
    assert torch.equal(read[~masked], ids[~masked])
    new = read[masked & is_replaced]
    assert new.min() >= 2
    assert len(new.unique()) > 1000


@pytest.mark.parametrize("seed", range(20))
def test_padding_and_unknown_words_are_never_masked(seed):
    read, masked = mask(IDS, LENGTHS, 0.15, WORDS, UNKNOWN, seed)
    assert not masked[~VALID].any()
    assert not masked[0, 5]
    assert torch.equal(read[~VALID], IDS[~VALID])
    assert masked.any(1).all()  # one token of every document at least, also of the third
    again = mask(IDS, LENGTHS, 0.15, WORDS, UNKNOWN, seed)
    assert all(map(torch.equal, again, (read, masked)))


def test_a_document_of_unknown_words_has_nothing_to_predict():
    ids = torch.tensor([[1, 1, 1], [1, 5, 1]])
    _, masked = mask(ids, torch.tensor([3, 3]), 0.15, WORDS, UNKNOWN, 0)
    assert masked.tolist() == [[False, False, False], [False, True, False]]


def masked_model(cfg):
    """The network of a first phase with its initial values."""
    network = MaskedWords(cfg).network(build_backbone(cfg), WORDS, 3)
    initialize(network, cfg.seed)
    return network


def config(*overrides):
    size = ["model.d_model=8", "model.n_heads=2", "model.n_layers=2", "model.d_ff=16"]
    return checked(composed("pretrain=masked", *size, *overrides))


def test_texts_without_labels_are_enough(tmp_path):
    texts = pd.DataFrame({"text": ["the cat sat", "a dog ran far"] * 20})
    write_splits(tmp_path, train=texts, test=texts)
    cfg = config("data=folder", f"data.path={tmp_path}", "data.name=tiny", f"cache_dir={tmp_path}")
    assert len(build_data(cfg, MaskedWords(cfg)).documents["train"]) == 36


@pytest.mark.parametrize(("fusion", "encoding"), [("gate_cnn", "sinusoidal"), ("none", "tupe")])
def test_the_initial_values_are_those_of_the_classifier(fusion, encoding):
    cfg = config(f"fusion={fusion}", f"encoding={encoding}", "fidelity=paper")
    from_scratch = build_network(cfg, WORDS, 3)
    initialize(from_scratch, cfg.seed)
    own, masked = from_scratch.state_dict(), masked_model(first_phase(cfg)).state_dict()
    assert own.keys() == masked.keys()
    assert all(torch.equal(own[n], masked[n]) for n in own if not n.startswith("head."))


def test_the_loss_is_that_of_the_masked_tokens_of_a_whole_forward_pass():
    cfg = first_phase(config("fusion=concat", "model.dropout=0.0"))
    model = masked_model(cfg)
    module = MaskedTokens(model, cfg.optim, 3, 0.3).eval()
    read, masked = module.hide(BATCH, "training", 0)
    logits = model.head(model.encode(read, LENGTHS))  # of every token
    expected = F.cross_entropy(logits[masked], IDS[masked])
    found = F.cross_entropy(model(read, LENGTHS, masked), IDS[masked])
    assert float(found.detach()) == pytest.approx(float(expected.detach()), abs=1e-6)


def test_masks_depend_on_seed_and_step_alone():
    found = []
    for fusion in ("add", "gate_mlp"):
        cfg = first_phase(config(f"fusion={fusion}"))
        module = MaskedTokens(masked_model(cfg), cfg.optim, 3, 0.15)
        torch.rand(7)  # the global generator takes no part
        found.append([module.hide(BATCH, "training", step)[0] for step in (0, 1)])
    assert torch.equal(found[0][0], found[1][0])
    assert not torch.equal(found[0][0], found[0][1])


def test_the_first_phase_is_the_same_for_runs_that_differ_in_their_own_training():
    one = config("optim.lr=0.1", "trainer.max_epochs=3", "data.batch_size=7", "optim=adam")
    two = config("trainer.monitor=loss", "trainer.patience=2", "model.head_dropout=0.5")
    assert first_phase(one) == first_phase(two)
    for other in ("seed=1", "fusion=concat", "pretrain.lr=0.1", "data.max_len=9", "encoding=rope"):
        assert first_phase(config(other)) != first_phase(one)
