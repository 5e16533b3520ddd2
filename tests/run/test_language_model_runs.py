"""Runs with task=language_model: their records, computed again, and their resume."""

import math
import re
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
import torch
from tokenizers.normalizers import Lowercase

from commands import called
from documented import undocumented
from posfuse import options
from posfuse.errors import ConfigError, InputError
from posfuse.model.language_model import LanguageModel
from posfuse.runs import measurements, records
from posfuse.runs.checks import checked
from posfuse.train import train
from posfuse.training.export import export
from posfuse.training.next_token import NextToken
from posfuse.training.sample import continuation
from posfuse.training.trained import load_run
from processes import assert_same_files
from refusals import refusal
from small_pretrained import byte_bpe
from small_runs import SMALL, composed, interrupted, small_config

TEXT = [
    "task=language_model", "data.vocabulary.unit=bytes", "data.max_len=8",
    "data.test_lengths=[16,32]", "trainer.max_epochs=2",
]  # fmt: skip
COPY = [
    "task=language_model", "data=copy", "data.corpus.sizes=[200,40,40]",
    "data.corpus.lengths=[3,9]", "data.max_len=9", "data.test_lengths=[9,13]", *SMALL,
    "trainer.max_epochs=2", "trainer.evaluations=2", "data.batch_size=16",
]  # fmt: skip


def of_copy(cache, *more):
    return checked(composed(*COPY, f"cache_dir={cache}", *more))


@pytest.fixture(scope="module")
def text_run(corpus, tmp_path_factory):
    folder = tmp_path_factory.mktemp("text")
    more = ["data.vocabulary.ending=.", "fusion=concat", "trainer.evaluations=2"]
    return folder, train(small_config(corpus, *TEXT, *more), folder)


@pytest.fixture(scope="module")
def copy_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("copy")
    return folder, train(of_copy(folder.parent / "cache"), folder)


def losses(model, ids):
    """The loss in nats and whether it is right, of each next token of ids (L + 1,), one by one."""
    with torch.no_grad():
        logits = model(ids[None, :-1], torch.tensor([len(ids) - 1]))[0].double()
    log_p = logits.log_softmax(-1)[torch.arange(len(ids) - 1), ids[1:]]
    return -log_p.numpy(), (logits.argmax(-1) == ids[1:]).numpy()


def losses_of_windows(folder, corpus, length, step):
    """`losses` of windows of the test texts, each (windows, length)."""
    _, _, module = load_run(folder)
    texts = pd.read_parquet(corpus / "test.parquet")["text"]
    every = torch.tensor([byte + 2 for byte in "".join(f"{t}." for t in texts).encode()])
    windows = every.unfold(0, length + 1, step)
    return map(np.stack, zip(*(losses(module.model, window) for window in windows), strict=True))


def test_the_docs_name_all_parts_of_the_files(text_run, copy_run):
    assert [undocumented(folder) for folder, _ in (text_run, copy_run)] == [set(), set()]


def test_bits_per_byte_are_those_of_the_texts(text_run, corpus):
    folder, record = text_run
    assert record["vocabulary_size"] == 258
    for length in (8, 16, 32):
        whole = record["lengths"][str(length)] if length > 8 else record["test"]
        loss, right = losses_of_windows(folder, corpus, length, length)
        assert whole["loss"] == pytest.approx(loss.mean(), abs=1e-6)
        assert whole["bits_per_byte"] == pytest.approx(loss.mean() / math.log(2), abs=1e-6)
        assert whole["accuracy"] == right.mean()
        # Overlapping windows: every target but those of the first window sees half of them or more.
        loss, _ = losses_of_windows(folder, corpus, length, length // 2)
        sliding = np.concatenate([loss[0, : length // 2], loss[:, length // 2 :].flatten()])
        assert record["sliding"][str(length)]["loss"] == pytest.approx(sliding.mean(), abs=1e-6)
    frame = pd.read_parquet(folder / records.PREDICTIONS)
    assert frame.columns.tolist() == ["index", "row", "length", "group", "targets", "right", "loss"]
    assert frame["loss"].sum() / frame["targets"].sum() == pytest.approx(record["test"]["loss"])
    history = pd.read_csv(folder / records.HISTORY)
    assert len(history) == 4
    assert {"train_loss", "val_loss", "val_accuracy", "val_bits_per_byte"} < set(history)
    assert "val_greedy_accuracy" not in history
    best = history.loc[record["best_evaluation"] - 1]
    assert best["val_accuracy"] == pytest.approx(record["validation"]["accuracy"], abs=1e-6)
    assert record["label_names"] == []
    assert record["mean_tokens"]["test"] == 8
    assert load_run(folder)[1].facts()["documents"]["test"] == len(frame)


def test_the_loss_by_position_is_that_of_the_windows(text_run, corpus):
    folder, record = text_run
    loss, _ = losses_of_windows(folder, corpus, 8, 8)
    rows = measurements.read_measurements(folder)
    assert rows["name"].unique() == ["loss_by_position"]
    assert rows[["low", "high"]].to_numpy().tolist() == [[0, 0], [1, 1], [2, 3], [4, 7]]
    expected = [loss[:, part].mean() for part in (0, 1, slice(2, 4), slice(4, 8))]
    assert rows["value"].to_numpy() == pytest.approx(expected, abs=1e-6)
    assert rows["n"].tolist() == [len(loss) * n for n in (1, 1, 2, 4)]
    weighted = (rows["value"] * rows["n"]).sum() / rows["n"].sum()
    assert weighted == pytest.approx(record["test"]["loss"], abs=1e-6)


def test_the_last_line_of_a_run_has_its_tasks_own_metric(text_run, copy_run, caplog):
    for (_, record), metric in ((text_run, "bits_per_byte"), (copy_run, "exact_match")):
        assert record["task"] == {"metric": metric, "predictions": measurements.WINDOWS}
    folder, record = copy_run
    with caplog.at_level("INFO"):
        train(of_copy(folder.parent / "cache"), folder)
    assert f"already done, test exact match {record['test']['exact_match']:.4f}" in caplog.text


def test_answers_are_judged_after_the_bar(copy_run):
    """Token by token, and decoded one string at a time: the first wrong token makes both wrong."""
    folder, record = copy_run
    _, data, module = load_run(folder)
    bar = data.store.id_of("|")
    for split, found in {"test": record["test"], "test@13": record["lengths"]["13"]}.items():
        part, right, decoded = data.store.splits[split], [], []
        for start, end in pairwise(part.offsets):
            ids = torch.from_numpy(part.ids[start:end].astype(np.int64))
            prompt = ids[: ids.tolist().index(bar) + 1]
            own = losses(module.model, ids)[1][len(prompt) - 1 :]
            answer = module.model.generate(prompt[None], len(ids) - len(prompt))[0]
            decoded.append((answer == ids[len(prompt) :]).numpy())
            assert decoded[-1].all() == own.all()
            right.append(own)
        assert found["accuracy"] == np.concatenate(right).mean()
        assert found["exact_match"] == np.mean([own.all() for own in right])
        assert found["greedy_accuracy"] == np.concatenate(decoded).mean()
        if split == "test":
            frame = pd.read_parquet(folder / records.PREDICTIONS)
            assert frame["right"].tolist() == [own.sum() for own in right]
            assert frame["greedy_right"].tolist() == [own.sum() for own in decoded]
    assert "sliding" not in record
    assert "bits_per_byte" not in record["test"]
    best = pd.read_csv(folder / records.HISTORY).loc[record["best_evaluation"] - 1]
    expected = record["validation"]["greedy_accuracy"]
    assert best["val_greedy_accuracy"] == pytest.approx(expected, abs=1e-6)


def test_a_resumed_run_equals_an_undisturbed_one(copy_run, tmp_path):
    whole, _ = copy_run
    cfg = of_copy(whole.parent / "cache")
    interrupted(cfg, tmp_path / "run", 17, module=NextToken)
    train(cfg, tmp_path / "run")
    assert_same_files(whole, tmp_path / "run")


def test_an_encoding_that_cannot_be_causal_is_refused(tmp_path):
    cfg = of_copy(tmp_path / "cache", "encoding=alibi", "fusion=none")
    cfg.encoding.attention = {"_target_": "variants.Bidirectional"}
    with pytest.raises(ConfigError, match=r"encoding=alibi fusion=none: cannot be causal"):
        train(cfg, tmp_path / "run")


def test_windows_longer_than_the_text_are_one_line(corpus, tmp_path):
    for overrides in (["data.max_len=5000", "data.test_lengths=[]"], ["data.test_lengths=[5000]"]):
        line = refusal(train, small_config(corpus, *TEXT, *overrides), tmp_path / "run")
        key = overrides[0].partition("=")[0]
        assert re.match(rf"{key}: a split of tiny is too short .* use shorter", line)


def test_a_vocabulary_without_some_symbols_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"data\.vocabulary: lacks symbols of copy, and"):
        train(of_copy(tmp_path / "cache", "data.vocabulary.max_size=5"), tmp_path / "run")


def test_the_kind_of_a_run_is_named(copy_run, reference, tmp_path):
    with pytest.raises(InputError, match="its task has no classes"):
        export(copy_run[0], tmp_path / "model.safetensors")
    assert sampled(reference[0], "--prompt", "a")[1].endswith(
        "is not a language model; give a run with task=language_model"
    )


def sampled(*arguments):
    return called("sample", *arguments)


def continued(folder, prompt, n, *more):
    """The prompt and its continuation by n tokens."""
    text, status = sampled(folder, "--prompt", prompt, "--tokens", n, *more)
    assert status is None
    assert text.startswith(prompt)
    return text


def test_a_sample_continues_its_prompt_with_the_most_probable_bytes(text_run):
    folder, _ = text_run
    text = continued(folder, "w1 w", 6)
    _, _, module = load_run(folder)
    ids = torch.tensor([[byte + 2 for byte in b"w1 w"]])
    for _ in range(6):
        with torch.no_grad():
            logits = module.model(ids, torch.tensor([ids.shape[1]]))[0, -1]
        ids = torch.cat((ids, logits.argmax().view(1, 1)), 1)
    assert text == bytes(int(i) - 2 for i in ids[0]).decode(errors="replace") + "\n"


def test_a_sample_of_any_length_stays_at_trained_positions(text_run, monkeypatch):
    """The run is trained with windows of 8 bytes and tested with longer ones."""
    ends, step = [], LanguageModel.step

    def noting(self, ids, positions, cache):
        ends.append(int(positions[-1]) + 1)
        return step(self, ids, positions, cache)

    monkeypatch.setattr(LanguageModel, "step", noting)
    continued(text_run[0], "w1 w2 w3 w4 w5", 20)
    draw = text_run[0], "w1", 90, "--temperature", 1
    first = continued(*draw)
    assert len(first.encode(errors="replace")) >= 90
    assert continued(*draw) == first != continued(*draw, "--seed", 1)
    assert max(ends) <= 8


def test_a_model_that_reads_one_token_continues_it(text_run):
    _, _, module = load_run(text_run[0])
    prompt = torch.tensor([[3, 7]])
    tokens = continuation(module.model, prompt, 4, 1, 0.0, 0)[0].tolist()
    for before, after in pairwise([7, *tokens]):
        logits = module.model(torch.tensor([[before]]), torch.tensor([1]))
        assert logits[0, 0].argmax() == after


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--prompt", "a b + |"], "--prompt: has symbols that copy lacks; use only: "),
        (["--prompt", " "], "--prompt: is empty; give a text to continue"),
        (["--prompt", "a " * 40], "--prompt: has 40 tokens, but this model reads 13; give at most"),
        (["--prompt", "a", "--tokens", "0"], "--tokens: must be 1 or more (got 0)"),
        (["--prompt", "a", "--temperature", "-1"], "--temperature: must be 0 or above (got -1)"),
        (
            ["--prompt", "a", "--seed", "-1", "--temperature", "1"],
            "--seed: must be between 0 and 4294967295 (got -1)",
        ),
        (["--prompt", "a", "--seed", "0"], "--seed: is for --temperature above 0; give one, or "),
    ],
)
def test_a_wrong_prompt_is_one_line(copy_run, arguments, message):
    _, status = sampled(copy_run[0], *arguments)
    assert status.startswith(f"error: {message}")


def test_a_sample_without_a_folder_is_refused_before_torch_is_imported(tmp_path):
    with pytest.raises(InputError, match="absent: no such folder; give the folder of a finished"):
        options.parse("sample", "", ["absent", "--prompt", "a"])


def test_a_text_without_labels_is_for_language_models(corpus, tmp_path):
    for path in corpus.glob("*.parquet"):
        pd.read_parquet(path)[["text"]].to_parquet(tmp_path / path.name)
    cache = f"cache_dir={tmp_path / 'cache'}"
    record = train(small_config(tmp_path, *TEXT, cache), tmp_path / "run")
    assert record["test"]["bits_per_byte"] > 0
    bytes_ = [entry for entry in TEXT if "unit" in entry]
    for own in (bytes_, []):  # bytes have the store of the language model
        with pytest.raises(InputError, match=r"no column 'label' .* or task=language_model"):
            train(small_config(tmp_path, *own, cache), tmp_path / "classifier")


def test_a_language_model_of_a_text_file_reads_the_users_tokens(tmp_path):
    lines = [f"Line {i}: the cat sat on the mat.\n" for i in range(60)]
    (tmp_path / "input.txt").write_text("".join(lines))
    theirs = byte_bpe(lines)
    theirs.normalizer = Lowercase()  # as of an uncased BERT
    theirs.save(str(tmp_path / "tok.json"))
    cfg = checked(composed(
        "task=language_model", "data=folder", f"data.path={tmp_path}/input.txt", "data.name=lines",
        f"data.vocabulary.file={tmp_path}/tok.json", "data.max_len=16",
        f"cache_dir={tmp_path}/cache", "fusion=concat", *SMALL, "trainer.max_epochs=2",
    ))  # fmt: skip
    folder = tmp_path / "sweep" / "run"
    record = train(cfg, folder)
    ids = [i + 2 for line in lines[-6:] for i in theirs.encode(line).ids]
    assert load_run(folder)[1].store.splits["test"].ids.tolist() == ids
    assert record["documents"]["test"] == (len(ids) - 1) // 16
    assert record["test"]["loss"] < np.log(300)
    for prompt in ("LINE 1: the", "\n"):
        assert "Ġ" not in continued(folder, prompt, 9)


@pytest.mark.parametrize(("unit", "join"), [("characters", ""), ("words", " ")])
def test_a_language_model_may_read_characters_or_words(corpus, tmp_path, capsys, unit, join):
    more = [f"data.vocabulary.unit={unit}", "data.test_lengths=[]", f"cache_dir={tmp_path}/cache"]
    record = train(small_config(corpus, *TEXT, *more), tmp_path / "run")
    _, data, _ = load_run(tmp_path / "run")
    part = data.store.splits["test"]
    texts = pd.read_parquet(corpus / "test.parquet")["text"]
    assert join.join(data.store.words(part.ids)) == join.join(texts)
    assert set(record["test"]) == {"loss", "accuracy"}
    for prompt in ("W1x0 w1x1", *["\n"] * (unit == "characters")):
        continued(tmp_path / "run", prompt, 3)
    capsys.readouterr()
    continued(tmp_path / "run", "w1x0 w1x1Ü", 3)
    n = {"words": "1 of its 2", "characters": "1 of its 10"}[unit]
    line = f"--prompt: {n} tokens are not in the vocabulary; the model reads <unk> there\n"
    assert capsys.readouterr().err == line
    empty = dict.fromkeys(("", *["\n"] * (unit == "words")), "is empty")
    for prompt, problem in {**empty, "a\udcff": "is not UTF-8 ("}.items():
        _, status = sampled(tmp_path / "run", "--prompt", prompt)
        assert status.startswith(f"error: --prompt: {problem}")
