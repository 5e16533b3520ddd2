"""The whole network, and the meaning of paired seeds."""

from itertools import product
from shutil import which

import pytest
import torch
import torch.nn.functional as F

from posfuse.model import dropout
from posfuse.model.dropout import Dropout
from posfuse.model.network import initialize
from variants import OPERATORS, batch_of, make_network, pairs, random_tensor, training_step

D, V, C = 8, 20, 3
PAIRS = pairs("add", "learned")
every_pair = pytest.mark.parametrize(("fusion", "encoding"), PAIRS)


def batch(lengths):
    draw = torch.Generator().manual_seed(0)
    return batch_of(*(torch.randint(1, V, (n,), generator=draw).tolist() for n in lengths))


@every_pair
def test_every_variant_trains_every_parameter_and_in_bfloat16(fusion, encoding):
    network, given = make_network(fusion, encoding).train(), batch([7, 4])
    F.cross_entropy(network(given.ids, given.lengths), given.labels).backward()
    for name, parameter in network.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        reached = parameter.grad != 0
        assert reached.all() if name.startswith("fusion.") else reached.any(), name
    network.zero_grad()
    with torch.autocast("cpu", torch.bfloat16):
        logits = network(given.ids, given.lengths)
    F.cross_entropy(logits.float(), given.labels).backward()
    assert all(p.grad.isfinite().all() for p in network.parameters() if p.grad is not None)


@every_pair
def test_a_step_on_a_gpu_does_not_wait_for_results(fusion, encoding, monkeypatch):
    """Reading a number would wait for the queued work. A meta tensor has no numbers to read."""
    monkeypatch.setattr(dropout, "_generator", lambda *_: None)  # there are none for meta tensors
    network = make_network(fusion, encoding).to("meta").train()
    given = batch([7, 4]).to("meta")
    logits = network(given.ids, given.lengths)
    F.cross_entropy(logits, given.labels).backward()
    norm = torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
    assert logits.shape == (2, C)
    assert norm.device.type == "meta"


@pytest.mark.parametrize(
    ("encoding", "backend", "norm"),
    [
        ("alibi", "eager", "none"),
        pytest.param("alibi", "eager", "layer", marks=pytest.mark.slow),
        pytest.param("rope", "aot_eager", "none", marks=pytest.mark.slow),
        pytest.param("alibi", "aot_eager", "layer", marks=pytest.mark.slow),
    ],
)
def test_on_a_gpu_a_step_compiles_to_one_graph_for_every_length(encoding, backend, norm):
    network = make_network("gate_cnn", encoding, fused_norm=norm).to("meta").train()
    torch.compiler.reset()
    network.compile(dynamic=True, fullgraph=True, backend=backend)
    first = batch([7, 4]).to("meta")
    network(first.ids, first.lengths)
    with torch.compiler.set_stance("fail_on_recompile"):
        for lengths in ([9, 9, 3], [10, 2]):  # at max_len torch may compile once more
            given = batch(lengths).to("meta")
            assert network(given.ids, given.lengths).shape == (len(lengths), C)


@pytest.mark.slow
@pytest.mark.skipif(not which("g++"), reason="torch.compile needs a C++ compiler")
def test_a_compiled_network_equals_the_plain_one(tmp_path, monkeypatch):
    """In evaluation, and in training without dropout, whose masks a compiled graph draws
    differently."""
    # torch's own cache may hold code for another CPU.
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    torch.compiler.reset()
    plain, compiled = (make_network("gate_cnn", "alibi", dropout=0.0) for _ in range(2))
    for block in (*plain.encoder.blocks, *compiled.encoder.blocks):
        block.attention.dropout = block.dropout.p = 0.0
    compiled.compile(dynamic=True)
    for lengths in ([7, 4], [9, 9, 3]):
        given = batch(lengths)
        for is_training in (False, True):
            logits = [n.train(is_training)(given.ids, given.lengths) for n in (compiled, plain)]
            torch.testing.assert_close(*logits)
            for one in logits:
                F.cross_entropy(one, given.labels).backward()
    for one, other in zip(compiled.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad)


@every_pair
def test_logits_do_not_depend_on_padding_or_the_rest_of_the_batch(fusion, encoding):
    network = make_network(fusion, encoding).eval()
    given = batch([9, 5, 1, 7])
    together = network(given.ids, given.lengths)
    for b, n in enumerate(given.lengths.tolist()):
        alone = network(given.ids[b : b + 1, :n], given.lengths[b : b + 1])
        torch.testing.assert_close(together[b : b + 1], alone, atol=1e-5, rtol=1e-5)


def test_shared_parameters_start_bitwise_equal_in_every_variant():
    reference = make_network("add", "learned", 1).state_dict()
    for i, ((fusion, encoding), norm) in enumerate(product(PAIRS, ("none", "layer"))):
        torch.manual_seed(i)  # the global generator has no effect
        found = make_network(fusion, encoding, 1, fused_norm=norm).state_dict()
        for name in found.keys() & reference.keys():
            assert torch.equal(found[name], reference[name]), (fusion, encoding, name)


def test_dropout_draws_the_same_masks_for_every_operator(monkeypatch):
    masks = {}
    for fusion in OPERATORS:
        network, seen = make_network(fusion), masks.setdefault(fusion, [])
        for module in network.modules():
            if isinstance(module, Dropout):
                # With an input of ones the output is the mask.
                module.register_forward_pre_hook(lambda m, args: (torch.ones_like(args[0]),))
                module.register_forward_hook(lambda m, args, out, to=seen: to.append(out.detach()))
        torch.manual_seed(len(masks))
        training_step(monkeypatch, network, batch([7, 4]), step=5)
    assert len(masks["add"]) == 7  # three per block, one before the head
    for fusion, seen in masks.items():
        for mine, reference in zip(seen, masks["add"], strict=True):
            assert torch.equal(mine, reference), fusion


def test_another_seed_draws_other_values_for_every_weight():
    one, other = (dict(make_network("gate_mlp", "learned", s).named_parameters()) for s in (0, 1))
    for name in one:
        constant = one[name].unique().numel() == 1  # zeros and ones are not drawn
        assert constant or not torch.equal(one[name], other[name]), name
    network = make_network()
    torch.manual_seed(123)
    before = torch.get_rng_state()
    initialize(network, 0)
    assert torch.equal(torch.get_rng_state(), before)  # the global generator takes no part


def test_masks_differ_between_steps_and_seeds_and_repeat(monkeypatch):
    def loss(seed, step):
        return training_step(monkeypatch, make_network(), batch([7, 4]), seed, step).item()

    first, again = ([loss(0, 0), loss(0, 1), loss(1, 0)] for _ in range(2))
    assert first == again
    assert len(set(first)) == 3


def test_token_scale_multiplies_embeddings():
    ids = batch([5, 3]).ids
    for scale, factor in (("sqrt_d", D**0.5), ("learned", D**0.5), (0.25, 0.25)):
        network = make_network("none", token_scale=scale)
        torch.testing.assert_close(network.fuse(ids), network.embedding(ids) * factor)


def test_a_norm_stands_between_fusion_and_encoder():
    gain, shift = random_tensor(D, seed=1), random_tensor(D, seed=2)
    for fusion in OPERATORS:
        plain = make_network(fusion).double()
        network = make_network(fusion, fused_norm="layer").double()
        network.fused_norm.load_state_dict({"weight": gain, "bias": shift})
        ids, places = batch([5, 3]).ids, torch.tensor([4, 0, 2])
        expected = F.layer_norm(plain.fuse(ids), (D,), gain, shift)
        torch.testing.assert_close(network.fuse(ids), expected, rtol=0, atol=1e-12)
        packed = network.fuse(ids[0, places], places)
        torch.testing.assert_close(packed, expected[0, places], rtol=0, atol=1e-12)
    with pytest.raises(ValueError, match="fused_norm is 'batch'; use layer or none"):
        make_network(fused_norm="batch")
