"""host=transformers: the untouched model's outputs, what trains, and what is refused."""

import json
import re
import shutil
import sys
from functools import cache

import numpy as np
import pandas as pd
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file

from posfuse.data.pretrained_folder import read_tokenizer
from posfuse.model.encoder import valid_positions
from posfuse.process import precision
from posfuse.runs.checks import checked
from posfuse.runs.identity import fingerprint
from posfuse.training.build import build_data, build_module
from posfuse.training.hosts import load_host
from refusals import refusal
from small_pretrained import (
    FAMILIES,
    ROWS,
    WORDS,
    host_overrides,
    untouched,
    write_pretrained,
    write_tokenizer,
)
from small_runs import composed, replaced, write_corpus
from variants import OPERATORS


@pytest.fixture(scope="module")
def folder_of(tmp_path_factory):
    """The folder of a tiny model of a family."""
    root = tmp_path_factory.mktemp("models")
    return cache(lambda family: write_pretrained(root / family, family))


@pytest.fixture(scope="module")
def bert(folder_of):
    return folder_of("bert")


@pytest.fixture(scope="module")
def of_corpus(tmp_path_factory):
    corpus = write_corpus(tmp_path_factory.mktemp("hosts") / "corpus")
    own = ["data=folder", "data.name=tiny", f"data.path={corpus}", "data.max_len=20"]
    own += [f"cache_dir={corpus.parent / 'cache'}", "trainer.accelerator=cpu"]
    return lambda *overrides: checked(composed(*own, *overrides))


@pytest.fixture(scope="module")
def of_bert(bert, of_corpus):
    return lambda *overrides: of_corpus(*host_overrides(bert), *overrides)


def classifier(cfg):
    return build_module(cfg, build_data(cfg)).model


def batch_of(cfg):
    return build_data(cfg).documents["train"][np.arange(8)]


def complaint(*overrides):
    return refusal(lambda: load_host(checked(composed(*overrides))))


def complaint_about(folder):
    return complaint(*host_overrides(folder), "data.max_len=20")


@pytest.mark.parametrize(
    ("family", "encoding"), [*((family, "host") for family in FAMILIES), ("bert", "none")]
)
@torch.no_grad()
def test_add_with_its_own_table_is_the_untouched_model(family, encoding, folder_of, of_corpus):
    """Up to the rounding of one sum in another order; without a table, the model whose table is
    zero. The documents have different lengths. A folded model has the same logits."""
    folder = folder_of(family)
    cfg = of_corpus(*host_overrides(folder), f"encoding={encoding}")
    host = load_host(cfg)
    assert len(host.rows) == (ROWS - 2 if family == "roberta" else ROWS)
    assert host.d_model == FAMILIES[family].get("embedding_size", 16)
    ours, theirs = classifier(cfg).eval().double(), untouched(folder).double()
    if encoding == "none":
        theirs.embeddings.position_embeddings.weight.zero_()
    batch = batch_of(cfg)
    valid = valid_positions(batch.lengths, batch.ids.shape[1])
    assert not valid.all()
    ids = batch.ids.masked_fill(~valid, theirs.config.pad_token_id)
    expected = theirs(input_ids=ids, attention_mask=valid.long()).last_hidden_state
    found = ours.encode(batch.ids, batch.lengths)
    torch.testing.assert_close(found[valid], expected[valid], rtol=0, atol=1e-12)
    pooled = torch.stack([x[:n].mean(0) for x, n in zip(expected, batch.lengths, strict=True)])
    wanted = F.linear(pooled, ours.head.weight, ours.head.bias)
    for model in (ours, ours.fold()):
        logits = model(batch.ids, batch.lengths)
        torch.testing.assert_close(logits, wanted, rtol=0, atol=1e-12)


@pytest.mark.parametrize("fusion", OPERATORS)
def test_gradients_reach_every_parameter_with_every_operator(fusion, of_bert):
    cfg = of_bert(f"fusion={fusion}")
    model, batch = classifier(cfg), batch_of(cfg)
    assert model.training
    assert model.encoder.pretrained.training
    F.cross_entropy(model(batch.ids, batch.lengths), batch.labels).backward()
    assert [name for name, p in model.named_parameters() if not p.grad.any()] == []


def test_random_positions_choose_rows_of_its_table(of_bert):
    random = ["encoding.positions=randomized", "data.max_len=12"]
    network = classifier(of_bert(*random, f"encoding.range={ROWS}"))
    assert network.table().shape == (ROWS, 16)
    message = refusal(classifier, of_bert(*random, f"encoding.range={ROWS + 1}"))
    assert re.match(r"encoding\.range: 41, but .* positions for 40 tokens", message)


def test_new_parameters_are_paired_and_pretrained_ones_kept(of_bert):
    one, other, another_seed = (
        classifier(of_bert(more)).state_dict() for more in ("fusion=add", "fusion=concat", "seed=1")
    )
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert not torch.equal(one["head.weight"], another_seed["head.weight"])
    assert torch.equal(one["table.pretrained"], another_seed["table.pretrained"])


def test_documents_have_the_tokens_of_the_folder(of_bert):
    data = build_data(of_bert("data.max_len=6"))
    texts = pd.read_parquet(data.cfg.path + "/train.parquet")["text"].str.split()
    batch = data.documents["train"][np.arange(len(texts))]
    found = [data.store.words(ids[:n]) for ids, n in zip(batch.ids, batch.lengths, strict=True)]
    assert found == [["[CLS]", *words[:4], "[SEP]"] for words in texts]
    cut = (texts.str.len() > 4).mean()
    assert 0 < cut < 1
    assert data.facts()["truncated_share"]["train"] == cut
    assert data.store.vocabulary_size == len(WORDS) + 4


def test_tokens_are_stored_by_tokenizer(folder_of, of_corpus):
    hosts = [host_overrides(folder_of(family)) for family in ("bert", "electra", "roberta")]
    stores = {build_data(of_corpus(*overrides)).store.folder for overrides in ([], *hosts)}
    assert len(stores) == 3  # those of bert and electra are equal


def test_unknown_words_are_counted(tmp_path):
    write_tokenizer(tmp_path, WORDS[:1])
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).touch()
    found = read_tokenizer(str(tmp_path))
    ids, offsets = found.encode([f"{WORDS[0]} else", ""])
    assert ids.tolist() == [2, 4, found.unknown, 3, 2, 3]
    assert offsets.tolist() == [0, 4, 6]
    assert (found.size, found.special, found.ending) == (5, 2, 1)


def test_the_folders_content_counts_and_not_its_place(bert, tmp_path, of_bert, of_corpus):
    cfg = of_bert()
    copy = shutil.copytree(bert, tmp_path / "copy")
    assert fingerprint(of_corpus(*host_overrides(copy))) == fingerprint(cfg)
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        changed = shutil.copytree(bert, tmp_path / name)
        with (changed / name).open("ab") as file:
            file.write(b" ")
        assert fingerprint(of_corpus(*host_overrides(changed))) != fingerprint(cfg), name


def test_its_precision_is_that_of_a_large_model(tmp_path, monkeypatch):
    monkeypatch.setattr(precision, "speedup", lambda of: 2.0)
    cfg = composed("host=transformers", "encoding=host", "speed=fast", "data.max_len=64")
    assert precision.shape(cfg) == precision.Shape(tokens=64)
    assert precision.fastest("cpu", precision.shape(cfg), tmp_path) == "bf16-mixed"


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ("encoding=host", "encoding=host: is the position table of a pretrained model"),
        ("host.path=somewhere", "host.path: must be null with host=own, because only"),
        ("model=pretrained", "model.d_model: null is for host=transformers"),
        ("host=transformers", "host.path: no pretrained model given"),
        ("host=transformers host.path=", "host.path: '' is empty"),
        ("host=transformers host.path=no/bert", "host.path: no config.json in no/bert; nothing"),
        ("BERT protocol=imdb model=pretrained",
         "model.d_model: must be null with host=transformers, because FOLDER decides it; use "
         "model=pretrained, and no protocol or experiment that sets it (got 256)"),
        ("BERT speed=fast", "model.attention_dropout: must be null with host=transformers"),
        ("BERT model.token_scale=learned", "model.token_scale: must be a number with"),
        ("BERT model.head_dropout=null", "model.head_dropout: must be a number with"),
        ("BERT encoding=rope", "encoding=rope: acts inside attention"),
        ("BERT pretrain=masked", "pretrain.name: must be none with host=transformers, because"),
        ("BERT task=language_model", "host.name: must be own with task=language_model, because"),
        ("BERT trainer.compile=true", "trainer.compile: must be false with host=transformers"),
        ("BERT fidelity.blocks=copies", "fidelity.blocks: must be independent with host=tr"),
        ("BERT data.word_order=shuffled", "data.word_order: must be original with host=tr"),
        ("BERT data.vocabulary.unit=bytes", "data.vocabulary.unit: must be words with host=tr"),
        ("BERT data=parity", "host.name: must be own with data=parity, because its tokens"),
        ("BERT data.max_len=41", "data.max_len: 41, but "),
        ("BERT data.test_lengths=[41]", "data.test_lengths: 41, but "),
        ("BERT data.max_len=2", "data.max_len: must be above 2, the special tokens"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_in_one_line(bert, overrides, message):
    given = " ".join([*host_overrides(bert), "data.max_len=20"])
    line = complaint(*replaced(overrides.replace("BERT", given).split()))
    assert line.replace(str(bert), "FOLDER").startswith(message)


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("config.json", None, "no config.json in"),
        ("model.safetensors", None, "no model.safetensors in"),
        ("tokenizer.json", None, "no tokenizer.json in"),
        ("config.json", "[" * 100_000, "cannot be loaded (nested too deeply"),
        ("config.json", {"model_type": "nobert"}, "cannot be loaded ("),
        ("config.json", {"num_hidden_layers": 10**6}, "num_hidden_layers is 1000000, above 4096)"),
        ("config.json", {"block_sizes": [2, 10**6]}, "block_sizes is 1000000, above 4096)"),
        ("config.json", {"num_hidden_layers": 3}, "lacks weights of its model (encoder.layer.2."),
        ("config.json", {"position_embedding_type": "relative_key"}, "with relative_key positions"),
        ("model.safetensors", "?", "cannot be loaded ("),
        ("tokenizer.json", "{}", "tokenizer.json: not a tokenizer ("),
        ("tokenizer.json", [*WORDS, "more"], "tokenizer.json has ids up to 28, but the model has"),
    ],
)  # fmt: skip
def test_a_folder_that_is_no_whole_model_is_refused(bert, tmp_path, file, content, message):
    """None: without this file. A dict: its configuration with these options. A list: with these
    words."""
    path = shutil.copytree(bert, tmp_path / "bert") / file
    if isinstance(content, dict):
        content = json.dumps(json.loads(path.read_text()) | content)
    path.unlink()
    if isinstance(content, list):
        write_tokenizer(path.parent, content)
    elif content is not None:
        path.write_text(content)
    text = complaint_about(path.parent)
    assert str(path.parent) in text
    assert message in text


def test_weights_that_are_not_finite_are_refused(bert, tmp_path):
    path = shutil.copytree(bert, tmp_path / "bert") / "model.safetensors"
    values = load_file(path)
    name = next(name for name in values if name.endswith("word_embeddings.weight"))
    values[name][3, 2] = torch.nan
    save_file(values, path, {"format": "pt"})
    expected = f"bert has weights that are not finite in {name}; give a model whose training did"
    assert expected in complaint_about(path.parent)


RELATIVE = {"relative_attention": True, "pos_att_type": ["c2p", "p2c"]}


@pytest.mark.parametrize(
    ("family", "options", "message"),
    [
        ("t5", {"d_model": 16, "d_kv": 8, "d_ff": 32}, ", an encoder with a decoder"),
        ("deberta-v2", {**RELATIVE, "position_biased_input": False}, "no single table of absolute"),
        ("deberta", RELATIVE, "outputs depend on the order of tokens without"),
        ("mpnet", {}, "outputs depend on the order of tokens without"),
        ("fnet", {}, "use a BERT-like one"),  # it has no mask of padding
        ("squeezebert", {"embedding_size": 16}, "cannot be run on fused embeddings ("),
    ],
)
def test_families_with_other_positions_are_refused_by_name(family, options, message, tmp_path):
    found = complaint_about(write_pretrained(tmp_path, family, **options))
    assert f"is a model of the family {family}" in found
    assert message in found


def test_a_path_that_drops_positions_is_refused(bert, monkeypatch):
    from transformers.models.bert.modeling_bert import BertEmbeddings

    forward = BertEmbeddings.forward

    def dropping(self, input_ids=None, inputs_embeds=None, **others):
        if inputs_embeds is None:
            return forward(self, input_ids=input_ids, **others)
        self.position_embeddings(torch.arange(inputs_embeds.shape[1])[None])
        return inputs_embeds

    monkeypatch.setattr(BertEmbeddings, "forward", dropping)
    assert "family bert, whose outputs for inputs_embeds differ" in complaint_about(bert)


def test_without_the_extra_its_name_is_given(bert, monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    expected = "is not installed; run pip install 'posfuse[transformers]'"
    assert complaint_about(bert).endswith(expected)
