"""A folded model gives what its origin gives, without the embeddings and the projections."""

import re
from pathlib import Path

import pytest
import torch
from torch import nn

from posfuse.model.fusion import Concat, Fusion
from posfuse.model.network import PositionClassifier
from posfuse.train import train
from small_runs import small_config, write_corpus
from variants import ENCODINGS, OPERATORS, make_network, random_tensor

IDS = torch.tensor([[3, 4, 5, 6, 7, 8, 9, 2, 1, 3, 4, 5], [9, 8, 7, 6, 5, 0, 0, 0, 0, 0, 0, 0]])
LENGTHS = torch.tensor([12, 5])  # the whole table, and padding
DOCUMENT = Path(__file__).parents[2] / "docs" / "folding.md"
every_operator = pytest.mark.parametrize("name", OPERATORS)


def network(fusion, encoding="sinusoidal", **options):
    """In float64 with every weight drawn anew, so that no gate is near 0.5."""
    made = make_network(fusion, encoding, **options).double().eval()
    for i, (name, parameter) in enumerate(made.named_parameters()):
        if "norm" not in name and parameter.dim():
            parameter.data = 0.5 * random_tensor(*parameter.shape, seed=i)
    return made


def check_equal(folded, origin, kind=torch.float64):
    atol = 1e-10 if kind == torch.float64 else 1e-5
    folded, origin = folded.to(kind), origin.to(kind)
    for n, offset in ((12, 0), (5, 0), (5, 7), (1, 11)):
        given = IDS[:, :n], LENGTHS.clamp(max=n), offset
        torch.testing.assert_close(folded(*given), origin(*given), rtol=0, atol=atol)


@pytest.mark.parametrize("kind", [torch.float64, torch.float32])
@pytest.mark.parametrize("encoding", ENCODINGS)
@every_operator
def test_a_folded_model_gives_the_logits_of_its_origin(name, encoding, kind):
    origin = network(name, encoding)
    with torch.no_grad():
        check_equal(origin.fold(), origin, kind)


@pytest.mark.parametrize("scale", ["learned", 0.25])
@every_operator
def test_the_token_scale_is_folded_in(name, scale):
    origin = network(name, token_scale=scale)
    if scale == "learned":
        origin.token_scale.log_scale.data.fill_(-0.7)
    check_equal(origin.fold(), origin)


def test_a_document_without_words_counts_as_one_padding():
    origin = network("gate_scalar")
    given = IDS[:, :3].clone().index_fill_(0, torch.tensor([1]), 0), torch.tensor([3, 0])
    torch.testing.assert_close(origin.fold()(*given), origin(*given), rtol=0, atol=1e-10)


@every_operator
def test_a_packed_batch_is_fused_as_a_padded_one(name):
    origin = network(name)
    folded = origin.fold()
    ids, positions = torch.tensor([3, 9, 4, 8]), torch.tensor([0, 4, 1, 11])
    fused = origin.fusion(origin.tokens(ids), origin.table(), positions)
    torch.testing.assert_close(folded.fuse(ids, positions), fused, rtol=0, atol=1e-12)


# Numbers that a word and a position keep, with d = 8.
KEPT = {
    "none": ([8], []),
    "add": ([8], [8]),
    "add_scaled": ([8], [8]),
    "mul": ([8], [8]),
    "concat": ([8], [8]),
    "gate_constant": ([8], [1, 8]),
    "gate_cnn": ([8], [1, 8]),
    "gate_scalar": ([8, 1], [1, 8]),
    "gate_feature": ([8, 8], [8, 8]),
    "gate_mlp": ([8, 8], [8, 8]),
    "mlp": ([8], [8]),
}
KEPT |= {name: KEPT[name.removesuffix("_linear_start")] for name in OPERATORS}


@pytest.mark.parametrize("name", KEPT)
def test_what_is_kept_of_words_and_positions(name):
    folded = network(name).fold()
    words, positions = KEPT[name]
    assert [tuple(part.shape) for part in folded.words] == [(20, k) for k in words]
    assert [tuple(part.shape) for part in folded.positions] == [(12, k) for k in positions]


@pytest.mark.parametrize("bias", [False, True])
def test_concat_is_a_lookup_and_an_addition(bias):
    origin = network("concat")
    origin.fusion = Concat(8, bias).double()
    shift = origin.fusion.bias.data if bias else 0.0
    words, positions = origin.fold().words[0], origin.fold().positions[0]
    weight = torch.cat((origin.fusion.weight_token, origin.fusion.weight_position), 1)
    for word, i in ((3, 0), (19, 11), (0, 5)):
        pair = torch.cat((8**0.5 * origin.embedding.weight[word], origin.table()[i]))
        expected = weight @ pair + shift
        torch.testing.assert_close(words[word] + positions[i], expected, rtol=0, atol=1e-12)
    check_equal(origin.fold(), origin)


@every_operator
def test_nothing_is_projected_at_inference(name, monkeypatch):
    folded = network(name).fold()
    for part in ("project", "project_tokens"):
        monkeypatch.setattr(type(folded.fusion), part, None)
    assert folded(IDS, LENGTHS).isfinite().all()


@every_operator
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


def test_documents_longer_than_the_table_are_refused_in_the_same_words():
    origin = network("gate_scalar")
    ids, lengths = IDS.repeat(1, 2)[:, :13], torch.tensor([13, 13])
    with pytest.raises(ValueError) as caught:
        origin(ids, lengths)
    with pytest.raises(ValueError, match=re.escape(str(caught.value))):
        origin.fold()(ids, lengths)


class Modulate(Fusion):
    """An operator that says nothing of folding."""

    def project(self, table):
        return (1 + table,)

    def merge(self, token, position):
        return token[0] * position[0]


def test_an_operator_that_says_nothing_of_folding_folds_too():
    given = network("add")
    origin = PositionClassifier(Modulate(8), given.table, given.encoder, 20, 3).double().eval()
    check_equal(origin.fold(), origin)


def document_code():
    return re.findall(r"^```python\n(.*?)^```", DOCUMENT.read_text(), re.M | re.S)


def test_the_documents_commands_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    code = document_code()
    (folder,) = map(Path, re.findall(r'load_run\("(.*?)"\)', code[0]))
    folder.mkdir(parents=True)
    corpus = write_corpus(tmp_path / "corpus")
    train(small_config(corpus, "fusion=gate_scalar", "trainer.max_epochs=1"), folder)
    names: dict = {}
    exec(code[0], names)
    batch = names["batch"]
    assert names["predicted"].tolist() == (
        names["classifier"].model(batch.ids, batch.lengths).argmax(-1).tolist()
    )
    exec(code[1], names)
    assert capsys.readouterr().out.startswith("['0', '1', '2'] tensor([[")


def test_the_documents_operator_folds():
    names = {"Fusion": Fusion, "nn": nn}
    exec(document_code()[2], names)
    given = network("add")
    operator = names["Bilinear"](8)
    origin = PositionClassifier(operator, given.table, given.encoder, 20, 3).double().eval()
    folded = origin.fold()
    check_equal(folded, origin)
    expected = 8**0.5 * origin.embedding.weight @ operator.linear.weight.T
    torch.testing.assert_close(folded.words[0].data, expected)
