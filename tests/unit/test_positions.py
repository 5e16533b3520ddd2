"""Explicit positions: contiguous, shifted, or a random sorted subset of a longer range."""

import pytest
import torch

from posfuse.errors import ConfigError
from posfuse.model.positions import PositionSampler, as_tensor
from posfuse.runs.checks import checked
from posfuse.training import diagnostics
from posfuse.training.build import build_network, build_parts
from small_runs import SMALL, composed
from variants import ENCODINGS, batch_of, make_network, make_table, pairs, training_step

BATCH = batch_of([2, 3, 4, 5, 6, 7, 8, 9], [9, 8, 7, 6, 5, 4])
IDS, LENGTHS = BATCH.ids, BATCH.lengths
SPREAD = torch.tensor([0, 1, 3, 4, 6, 8, 10, 11])  # eight of the twelve positions of small networks
every_encoding = pytest.mark.parametrize("encoding", ENCODINGS)


def random_network(fusion="gate_scalar", encoding="sinusoidal", reach=12):
    return make_network(fusion, encoding, sampler=PositionSampler(reach, 5)).eval()


def config(*overrides):
    return checked(composed("data=folder", "data.name=a", "data.path=.", *SMALL, *overrides))


def test_a_subset_is_sorted_and_a_function_of_its_seed():
    sampler = PositionSampler(50, 1)
    for length in (1, 7, 50):
        found = sampler.in_training(length, 3)
        assert found.dtype == torch.int64
        assert len(found) == length
        assert found.tolist() == sorted(set(found.tolist()) & set(range(50)))
        assert torch.equal(found, sampler.in_training(length, 3))
    assert not torch.equal(sampler.in_training(7, 3), sampler.in_training(7, 4))


def test_outside_training_the_seed_and_the_length_determine_the_subset():
    sampler = PositionSampler(50, 1)
    seven = sampler.outside_training(7)
    for seed in range(5):
        sampler.in_training(9, seed)  # batches in between
    assert torch.equal(sampler.outside_training(7), seven)
    assert torch.equal(PositionSampler(50, 1).outside_training(7), seven)
    assert not torch.equal(PositionSampler(50, 2).outside_training(7), seven)
    assert set(seven.tolist()) < set(sampler.outside_training(8).tolist())
    assert torch.equal(sampler.outside_training(7, offset=3), sampler.outside_training(10)[3:])


def test_without_a_range_positions_are_contiguous():
    assert PositionSampler().in_training(7, 3) == 0
    assert PositionSampler().outside_training(7, offset=3) == 3
    assert as_tensor(3, IDS).tolist() == list(range(3, 11))
    assert as_tensor(SPREAD, IDS) is SPREAD


def test_more_tokens_than_positions_are_refused():
    with pytest.raises(ValueError, match="13 tokens, but positions are drawn below 12; cut the"):
        random_network()(torch.ones(1, 13, dtype=torch.long), torch.tensor([13]))
    with pytest.raises(ValueError, match=r"train with encoding\.range=14"):
        random_network()(IDS, LENGTHS, 6)


@every_encoding
def test_the_table_and_the_scores_take_the_given_positions(encoding):
    """Eight tokens at spread positions are twelve tokens of which four are not there: no query sees
    them as keys, and the pool leaves them out."""
    network = make_network("add", encoding).double().eval()
    ids = torch.zeros(1, 12, dtype=torch.long)
    ids[:, SPREAD] = IDS[:1]
    there = torch.zeros(1, 12, dtype=torch.bool)
    there[:, SPREAD] = True
    x, encoder = network.fuse(ids), network.encoder
    every = torch.arange(12)
    for i, block in enumerate(encoder.blocks):
        part = encoder.positions[i % len(encoder.positions)]
        q, k, v = block.attention.heads(x)
        weights = part.weights(q, k, there[:, None, None], every, every)
        x = block.norm1(x + block.attention.output(weights @ v))
        x = block.norm2(x + block.feed_forward(x))
    expected = network.head(x[there].mean(0))
    found = network(IDS[:1], LENGTHS[:1], SPREAD)[0]
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-7)


@every_encoding
@torch.no_grad()
def test_an_offset_stands_for_positions_in_a_model_and_a_folded_one(encoding):
    for reach in (None, 12):
        network = random_network(encoding=encoding, reach=reach)
        folded = network.fold()
        for offset in (0, 2):
            positions = as_tensor(network.sampler.outside_training(8, offset), IDS)
            found = network(IDS, LENGTHS, offset)
            assert torch.equal(found, network(IDS, LENGTHS, positions))
            torch.testing.assert_close(folded(IDS, LENGTHS, offset), found, rtol=0, atol=1e-5)


@every_encoding
def test_diagnostics_use_the_positions_of_the_model(encoding):
    network = random_network(encoding=encoding)
    positions = network.sampler.outside_training(8)
    found = diagnostics.fusion_of_tokens(network, BATCH)
    assert found["position"].tolist() == [*positions.tolist(), *positions[:6].tolist()]
    gate = network.fusion.gate(
        *network.fusion.parts(network.tokens(IDS), network.table(), positions)
    )
    torch.testing.assert_close(found["gate"][:8], gate[0, :, 0].double())
    assert [len(layer) for layer in diagnostics.attention_entropy(network, BATCH)] == [14, 14]
    worth = diagnostics.worth_of_position(network, [BATCH], 8, 3)
    expected = (network(IDS, LENGTHS, 3).argmax(-1) == BATCH.labels).float().mean()
    assert worth["shifted"] == expected


def drawn_by_a_step(monkeypatch, network, **at):
    """The positions that the model gets in a training step."""
    seen = []
    network.register_forward_pre_hook(lambda module, arguments: seen.append(arguments[2]))
    training_step(monkeypatch, network, BATCH, **at)
    return seen[0]


def test_a_step_draws_the_same_positions_for_every_operator_and_encoding(monkeypatch):
    networks = [random_network(*pair) for pair in pairs("add", "sinusoidal")]
    found = [drawn_by_a_step(monkeypatch, network, step=7) for network in networks]
    assert all(torch.equal(positions, found[0]) for positions in found)
    assert len(found[0]) == 8


def test_positions_differ_between_steps_seeds_and_processes(monkeypatch):
    def drawn(**at):
        return tuple(drawn_by_a_step(monkeypatch, random_network(), **at).tolist())

    assert len({drawn(step=step) for step in range(20)}) > 10
    assert len({drawn(seed=seed) for seed in range(20)}) > 10
    assert len({drawn(rank=rank) for rank in range(20)}) > 10
    assert drawn(step=3) == drawn(step=3)


def test_a_network_has_a_row_for_every_random_position():
    overrides = ["encoding=rope", "encoding.positions=randomized", "encoding.range=600"]
    network = build_network(config(*overrides), 20, 3)
    assert network.table().shape == (600, 8)
    assert network.encoder.positions[0].rows == 600
    positions = network.sampler.outside_training(8)
    assert positions.max() > 100
    other = build_network(config(*overrides, "seeds.dropout=1"), 20, 3)
    assert not torch.equal(other.sampler.outside_training(8), positions)
    same = build_network(config(*overrides, "seed=1", "seeds.dropout=0"), 20, 3)
    assert torch.equal(same.sampler.outside_training(8), positions)
    assert build_network(config(), 20, 3).sampler.range is None


def test_a_range_below_the_longest_document_is_refused_before_data_is_loaded():
    random = ("encoding.positions=randomized", "encoding.range=40")
    message = r"encoding.range: 40, but documents have up to 512 tokens; use encoding.range=512 or"
    with pytest.raises(ConfigError, match=message):
        build_parts(config(*random))
    build_parts(config(*random, "data.max_len=40"))
    build_parts(config("encoding.range=40"))  # unused


TRAINED_ONLY = {"learned", "relative_table", "tupe", "diet"}


@every_encoding
def test_only_an_encoding_with_rows_of_its_own_ends_at_the_trained_length(encoding):
    longer = ("data.max_len=40", "data.test_lengths=[160]")
    cfg = config(f"encoding={encoding}", "fusion=add", *longer)
    if encoding in TRAINED_ONLY:
        with pytest.raises(ConfigError, match=f"{encoding}: its rows end at data.max_len=40, but"):
            build_parts(cfg)
    else:
        build_parts(cfg)
    cfg.encoding.positions = "randomized"
    build_parts(cfg)
    build_parts(config("encoding=learned", "fusion=none", *longer))  # reads no table


@every_encoding
def test_rows_do_not_depend_on_how_many_there_are(encoding):
    if encoding not in ("learned", "relative_table"):
        torch.manual_seed(0)
        short = make_table(encoding, 8, 12)
        torch.manual_seed(0)
        torch.testing.assert_close(make_table(encoding, 8, 40)()[:12], short())
