"""An exported model: the run's own probabilities from texts alone, and files that are refused."""

import re
import shutil
import sys

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from posfuse.errors import InputError
from posfuse.model.network import PositionClassifier
from posfuse.runs.checks import checked
from posfuse.train import train
from posfuse.training.export import _checksum, export, load_export
from posfuse.training.trained import load_run
from recipes import blocks
from refusals import refusal
from small_pretrained import byte_bpe
from small_runs import SMALL, composed, small_config, write_corpus


def trained(folder, *overrides):
    corpus = write_corpus(folder / "corpus")
    run = folder / "sweep" / "run"
    run.mkdir(parents=True)
    train(small_config(corpus, "trainer.max_epochs=1", *overrides), run)
    return corpus, run


@pytest.mark.parametrize(
    "overrides",
    [
        ["fusion=add", "data.eval_batch_size=7"],  # fewer than the texts
        ["fusion=gate_cnn", "encoding=learned"],
        ["fusion=mlp", "encoding=t5", "model.token_scale=learned", "model.fused_norm=layer"],
        ["fusion=concat", "data.vocabulary.unit=bytes", "data.max_len=40"],
        ["fusion=add", "data.vocabulary.unit=characters", "data.max_len=40"],
        ["encoding=rope", "encoding.positions=randomized", "encoding.range=600"],
        ["fusion=add", "data.vocabulary.file=tok.json"],
    ],  # test_folding.py folds every operator and encoding
)
def test_it_gives_the_runs_own_predictions(overrides, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    byte_bpe(["w1x1 the cat sat on the mat."] * 9).save("tok.json")
    corpus, run = trained(tmp_path, *overrides)
    export(run, tmp_path / "model.safetensors")
    texts = pd.read_parquet(corpus / "test.parquet")["text"].tolist()
    shutil.rmtree(corpus)  # an export needs nothing else
    (tmp_path / "tok.json").unlink()
    exported = load_export(tmp_path / "model.safetensors")
    expected = pd.read_parquet(run / "predictions.parquet").filter(like="log_p_").to_numpy()
    found = exported.probabilities(texts).log().numpy()
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert exported.label_names == ["0", "1", "2"]
    assert exported.probabilities(["", "words that nobody knows"]).isfinite().all()


def test_a_model_of_shuffled_words_is_refused(tmp_path):
    """It would read a text in its original order. The run itself loads."""
    _, run = trained(tmp_path, "data.name=tiny_shuffled", "data.word_order=shuffled")
    line = refusal(export, run, tmp_path / "model.safetensors")
    assert re.search(r"run: has data.word_order=shuffled, but an .*; use", line)
    assert load_run(run)[0].data.word_order == "shuffled"


def test_a_network_that_a_folded_model_would_not_equal_is_refused(tmp_path, monkeypatch):
    class MaxPool(PositionClassifier):
        def classify(self, fused, lengths, positions=0):
            return self.head(self.encoder(fused, lengths, positions).amax(1))

    _, run = trained(tmp_path)
    loaded = load_run(run)
    loaded[2].model.__class__ = MaxPool
    monkeypatch.setattr("posfuse.training.export.load_run", lambda run: loaded)
    line = refusal(export, run, tmp_path / "model.safetensors")
    assert line.startswith(f"{run}: MaxPool has its own classify, which a folded model does not")
    assert line.endswith("; use posfuse.training.trained.load_run")


def test_the_reader_of_an_export_needs_no_corpus_of_ones_own(tmp_path, own_module):
    corpus, run = write_corpus(tmp_path / "texts"), tmp_path / "run"
    text = f"import posfuse.data.corpora as c\n\ndef mine():\n    return c.folder({str(corpus)!r})"
    module = own_module("own_texts", text)
    cfg = small_config(corpus, "trainer.max_epochs=1")
    cfg.data.path, cfg.data.corpus = None, {"_target_": "own_texts.mine"}
    run.mkdir()
    train(cfg, run)
    export(run, tmp_path / "model.safetensors")
    module.unlink()
    del sys.modules["own_texts"]
    with pytest.raises(InputError, match="cannot import"):
        load_run(run)
    assert load_export(tmp_path / "model.safetensors").probabilities(["word"]).shape == (1, 3)


@pytest.mark.parametrize("target", ["posfuse.data.tasks.parity", "own_parity.parity"])
def test_a_model_of_a_task_reads_strings_beyond_the_trained_length(target, tmp_path, own_module):
    """The label depends on the last symbol too, so a cut string would have another one."""
    own_module("own_parity", "from posfuse.data.tasks import parity")
    own = ["data=parity", f"data.corpus._target_={target}", "data.corpus.lengths=[2,6]"]
    own += ["data.max_len=6", "data.test_lengths=[12]", "data.corpus.sizes=[40,20,20]"]
    own += [f"cache_dir={tmp_path}", *SMALL]
    cfg = checked(composed(*own))
    train(cfg, tmp_path)
    export(tmp_path, tmp_path / "model.safetensors")
    exported = load_export(tmp_path / "model.safetensors")
    expected = pd.read_parquet(tmp_path / "predictions_by_length.parquet")
    data = load_run(tmp_path)[1]
    strings = data.documents["test@12"]
    rows = strings[np.arange(len(strings))].ids.tolist()
    texts = [" ".join(data.store.words(ids)) for ids in rows]
    found = exported.probabilities(texts).log().numpy()
    np.testing.assert_allclose(found, expected.filter(like="log_p_"), atol=1e-5)


def signed(weights, header):
    """Both with the checksum of their own."""
    rest = {k: v for k, v in header.items() if k != "sha256"}
    return weights, {**rest, "sha256": _checksum(weights, rest)}


@pytest.fixture(scope="module")
def exported_file(tmp_path_factory):
    folder = tmp_path_factory.mktemp("export")
    _, run = trained(folder)
    export(run, folder / "not" / "there yet" / "model.safetensors")
    return folder / "not" / "there yet" / "model.safetensors"


def test_any_bit_that_differs_is_refused(exported_file, tmp_path):
    content = exported_file.read_bytes()
    n_header = int.from_bytes(content[:8], "little")
    end = len(content) - 1
    places = [8 + n_header, (8 + n_header + end) // 2, end, 8 + content[8:].index(b"label_names")]
    places.append(content.index(b"lr: ") + 6)  # a digit of the config
    for place in places:
        damaged = bytearray(content)
        damaged[place] ^= 1
        (tmp_path / "model").write_bytes(damaged)
        with pytest.raises(InputError, match=r"model: not a model that posfuse exported"):
            load_export(tmp_path / "model")
    assert load_export(exported_file).probabilities(["w0x1"]).shape == (1, 3)
    assert [path.name for path in exported_file.parent.iterdir()] == ["model.safetensors"]


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ("one string", r"texts: must be a list of strings \(got str\)"),
        ({"a", "b"}, r"texts: must be a list of strings \(got set\)"),
        (["a", None], r"texts\[1\]: not valid text \(.* 'NoneType' object\); give a string"),
        (["a", "b\ud800"], r"texts\[1\]: not valid text \(.* '\\ud800' .*\); give a string"),
    ],
)
def test_other_than_a_list_of_texts_is_refused_in_one_line(texts, message, exported_file):
    assert re.search(message, refusal(load_export(exported_file).probabilities, texts))


@pytest.mark.parametrize("path", ["", "a\0b", "folder", "file/model.safetensors"])
def test_a_path_that_cannot_be_written_is_refused(path, exported_file, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    run = exported_file.parents[2] / "sweep" / "run"
    message = refusal(export, run, path)
    assert message.startswith(f"path: {path!r} cannot be written (")
    assert message.endswith("); give another path")


def test_a_file_that_is_not_an_export_is_refused_in_one_line(exported_file, tmp_path):
    with safe_open(exported_file, "pt") as file:
        weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        header = file.metadata()
    (tmp_path / "cut").write_bytes(exported_file.read_bytes()[:-10])
    (tmp_path / "text").write_bytes(b"text")
    for name, content in {
        "no header": (weights, {}),
        "no checksum": (weights, {k: v for k, v in header.items() if k != "sha256"}),
        "no config": signed(weights, {**header, "config": "optim: {lrr: 1}"}),
        "other weights": signed({**weights, "more": torch.zeros(1)}, header),
        "no vocabulary": signed(weights, {**header, "vocabulary": "{}"}),
        "an alias": signed(weights, {**header, "config": "a: &a [b]\nc: [*a, *a]\n"}),
    }.items():
        save_file(content[0], tmp_path / name, content[1])
    for path in (tmp_path / "absent", *tmp_path.iterdir()):
        message = refusal(load_export, path)
        assert re.search(rf"{path}.* not a model .* export its run again", message)
    assert "has an alias" in refusal(load_export, tmp_path / "an alias")


def test_the_commands_of_the_docs_run(exported_file, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    first, second, _ = blocks("docs/folding.md")
    (folder,) = re.findall(r'load_run\("(.*?)"\)', first)
    shutil.copytree(exported_file.parents[2] / "sweep" / "run", folder)
    names: dict = {}
    exec(first, names)
    batch = names["batch"]
    expected = names["classifier"].model(batch.ids, batch.lengths).argmax(-1)
    assert torch.equal(names["predicted"], expected)
    exec(second, names)
    assert capsys.readouterr().out.startswith("['0', '1', '2'] tensor([[")
