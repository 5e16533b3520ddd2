"""The whole network, and what paired seeds mean."""

import itertools

import pytest
import torch
from hydra.utils import get_class
from omegaconf import OmegaConf

from posfuse.config import CONF_DIR, OptimConfig
from posfuse.data.batching import Batch
from posfuse.model import dropout
from posfuse.model.dropout import Dropout
from posfuse.model.encoder import Encoder
from posfuse.model.network import PositionClassifier, TokenScale, initialize, seed_from
from posfuse.training.classifier import Classifier
from variants import ENCODINGS as ALL_ENCODINGS
from variants import OPERATORS, make_network

FUSIONS = sorted(f.stem for f in (CONF_DIR / "fusion").glob("*.yaml"))
ENCODINGS = sorted(f.stem for f in (CONF_DIR / "encoding").glob("*.yaml"))
D, N, V, C = 8, 12, 20, 3


def model(
    fusion: str, encoding: str = "sinusoidal", seed: int = 0, **options
) -> PositionClassifier:
    kinds = [
        get_class(OmegaConf.load(CONF_DIR / "fusion" / f"{fusion}.yaml")._target_),
        get_class(OmegaConf.load(CONF_DIR / "encoding" / f"{encoding}.yaml").table._target_),
    ]
    network = PositionClassifier(
        kinds[0](d_model=D), kinds[1](d_model=D, max_len=N), Encoder(D, 2, 2, 16), V, C, **options
    )
    initialize(network, seed)
    return network


def batch(lengths: list[int]) -> Batch:
    draw = torch.Generator().manual_seed(0)
    n = torch.tensor(lengths)
    ids = torch.randint(1, V, (len(n), max(lengths)), generator=draw)
    ids[torch.arange(ids.shape[1]) >= n[:, None]] = 0
    return Batch(ids, torch.arange(len(n)) % C, n, torch.arange(len(n)), int(n.sum()))


@pytest.mark.parametrize(("fusion", "encoding"), itertools.product(FUSIONS, ENCODINGS))
def test_every_pair_gives_logits_and_trains_every_parameter(fusion: str, encoding: str) -> None:
    network = model(fusion, encoding).train()
    given = batch([7, 4])
    logits = network(given.ids, given.lengths)
    assert logits.shape == (2, C)
    torch.nn.functional.cross_entropy(logits, given.labels).backward()
    for name, parameter in network.named_parameters():
        assert parameter.grad is not None, name
        # A table of zeros gives weights on P a gradient of zero, and makes all of E * P zero.
        no_table = encoding == "none" and ("fusion" in name or fusion == "mul")
        assert parameter.grad.any() or no_table, name


@pytest.mark.parametrize(("fusion", "encoding"), itertools.product(OPERATORS, ALL_ENCODINGS))
def test_a_step_off_the_cpu_never_reads_a_number_back(
    fusion: str, encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A GPU would have to end its queued work first. A meta tensor has no numbers to read."""
    monkeypatch.setattr(dropout, "seeded", lambda *_: None)  # nothing is drawn there
    network = make_network(fusion, encoding).to("meta").train()
    given = batch([7, 4]).to("meta")
    logits = network(given.ids, given.lengths)
    torch.nn.functional.cross_entropy(logits, given.labels).backward()
    norm = torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
    assert logits.shape == (2, C)
    assert norm.device.type == "meta"


@pytest.mark.parametrize("encoding", ["sinusoidal", "rope", "alibi"])
def test_off_the_cpu_a_step_is_one_graph_for_every_length(encoding: str) -> None:
    network = make_network("gate_cnn", encoding).to("meta").train()
    torch.compiler.reset()
    network.compile(dynamic=True, fullgraph=True, backend="aot_eager")
    first = batch([7, 4]).to("meta")
    network(first.ids, first.lengths)
    with torch.compiler.set_stance("fail_on_recompile"):
        for lengths in ([9, 9, 3], [10, 2]):  # at max_len torch may compile once more
            given = batch(lengths).to("meta")
            assert network(given.ids, given.lengths).shape == (len(lengths), C)


@pytest.mark.parametrize("fusion", FUSIONS)
@pytest.mark.parametrize("encoding", ["learned", "sinusoidal"])
def test_logits_do_not_depend_on_padding_or_batch_mates(fusion: str, encoding: str) -> None:
    network = model(fusion, encoding).eval()
    given = batch([9, 5, 1, 7])
    together = network(given.ids, given.lengths)
    for b, n in enumerate(given.lengths.tolist()):
        alone = network(given.ids[b : b + 1, :n], given.lengths[b : b + 1])
        torch.testing.assert_close(together[b : b + 1], alone, atol=1e-5, rtol=1e-5)


def test_a_document_of_unknown_words_or_of_none_is_never_nan() -> None:
    network = model("gate_scalar").eval()
    ids = torch.tensor([[1, 1, 1], [0, 0, 0]])
    assert network(ids, torch.tensor([3, 0])).isfinite().all()


@pytest.mark.parametrize("seed", [0, 1])
def test_shared_parameters_start_bitwise_equal_in_every_variant(seed: int) -> None:
    reference = dict(model("add", "sinusoidal", seed).named_parameters())
    for fusion, encoding in itertools.product(FUSIONS, ENCODINGS):
        torch.manual_seed(hash(fusion) % 1000)  # the global generator has no say
        for name, parameter in model(fusion, encoding, seed).named_parameters():
            if name in reference:
                assert torch.equal(parameter, reference[name]), (fusion, encoding, name)


def test_seeds_differ_and_zero_is_one_of_them() -> None:
    weights = [model("concat", seed=s).fusion.weight_token for s in (0, 1, 0)]
    assert torch.equal(weights[0], weights[2])
    assert not torch.equal(weights[0], weights[1])


def test_layers_and_modules_do_not_start_as_copies() -> None:
    network = model("concat")
    first, second = (block.linear1.weight for block in network.encoder.blocks)
    assert not torch.equal(first, second)
    assert not torch.equal(network.fusion.weight_token, network.fusion.weight_position)


@pytest.mark.parametrize("step", [0, 5])
def test_dropout_draws_the_same_masks_for_every_operator(step: int, monkeypatch) -> None:
    masks = {}
    for fusion in FUSIONS:
        classifier = Classifier(model(fusion), OptimConfig(), C, seed=0).train()
        monkeypatch.setattr(Classifier, "global_step", step)
        classifier.log = lambda *args, **kwargs: None
        seen: list[torch.Tensor] = []
        for module in classifier.modules():
            if isinstance(module, Dropout):
                # On ones, what dropout gives is its mask.
                module.register_forward_pre_hook(lambda m, args: (torch.ones_like(args[0]),))
                module.register_forward_hook(
                    lambda m, args, out, to=seen: to.append(out.detach().clone())
                )
        torch.manual_seed(len(masks))
        classifier.training_step(batch([7, 4]), 0)
        masks[fusion] = seen
    assert len(masks["add"]) == 7  # three a block, one before the head
    for fusion, seen in masks.items():
        for mine, reference in zip(seen, masks["add"], strict=True):
            assert torch.equal(mine, reference), fusion


def test_token_scale_multiplies_the_embeddings() -> None:
    ones = torch.ones(1, 1, 16)
    assert TokenScale("sqrt_d", 16)(ones)[0, 0, 0] == 4
    assert TokenScale(0.125, 16)(ones)[0, 0, 0] == 0.125
    learned = TokenScale("learned", 16)
    assert learned(ones)[0, 0, 0].item() == pytest.approx(4)
    learned(ones).sum().backward()
    assert learned.log_scale.grad is not None


def test_seed_from_tells_names_and_seeds_apart() -> None:
    seeds = {seed_from(s, n) for s in range(50) for n in ("a", "b", "a/b")}
    assert len(seeds) == 150
    assert all(0 <= s < 2**63 for s in seeds)


@pytest.mark.parametrize("encoding", ["learned", "relative_table"])
def test_a_trained_table_starts_equal_for_every_operator(encoding: str) -> None:
    tables = [n.table() for n in (model(f, encoding) for f in FUSIONS) if n.fusion.uses_table]
    assert len(tables) > 1
    assert all(torch.equal(table, tables[0]) for table in tables)


@pytest.mark.parametrize("encoding", ["learned", "sinusoidal"])
def test_another_seed_draws_every_weight_anew(encoding: str) -> None:
    one, other = (dict(model("gate_mlp", encoding, s).named_parameters()) for s in (0, 1))
    for name in one:
        constant = one[name].unique().numel() == 1  # zeros and ones are no draws
        assert constant or not torch.equal(one[name], other[name]), name


def test_building_a_network_leaves_the_global_generator_alone() -> None:
    network = model("gate_mlp", "learned")
    torch.manual_seed(123)
    before = torch.get_rng_state()
    initialize(network, 0)
    assert torch.equal(torch.get_rng_state(), before)


def test_masks_differ_between_steps_and_seeds_and_repeat(monkeypatch) -> None:
    def loss(seed: int, step: int) -> float:
        monkeypatch.setattr(Classifier, "global_step", step)
        classifier = Classifier(model("add"), OptimConfig(), C, seed).train()
        classifier.log = lambda *args, **kwargs: None
        return classifier.training_step(batch([7, 4]), 0).item()

    losses = [loss(0, 0), loss(0, 1), loss(1, 0)]
    assert len(set(losses)) == 3
    assert losses == [loss(0, 0), loss(0, 1), loss(1, 0)]


@pytest.mark.parametrize("scale", ["sqrt_d", "learned", 0.125])
@pytest.mark.parametrize("lengths", [[5], [1], [12, 3, 1], [3, 2, 3, 1, 2]])
def test_logits_have_a_row_a_document(scale, lengths: list[int]) -> None:
    given = batch(lengths)
    logits = model("gate_cnn", token_scale=scale)(given.ids, given.lengths)
    assert logits.shape == (len(lengths), C)


def test_token_scale_reaches_the_fusion() -> None:
    networks = {s: model("none", token_scale=s) for s in ("sqrt_d", "learned", 0.25)}
    given, seen = batch([5, 3]), {}
    for scale, network in networks.items():
        network.fusion.register_forward_pre_hook(lambda m, a, s=scale: seen.update({s: a[0]}))
        network(given.ids, given.lengths)
    embedded = networks["sqrt_d"].embedding(given.ids)
    torch.testing.assert_close(seen["sqrt_d"], embedded * D**0.5)
    torch.testing.assert_close(seen["learned"], embedded * D**0.5)
    torch.testing.assert_close(seen[0.25], embedded / 4)
