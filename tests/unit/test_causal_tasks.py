"""The tasks of the language model, and what it reads: strings, windows and their targets."""

import numpy as np
import pytest
import torch

from posfuse.data import causal_tasks
from posfuse.data.windows import IGNORED, Answers, Windows
from posfuse.runs.checks import checked
from posfuse.training.build import build_data
from refusals import refusal
from small_corpora import tokenized
from small_runs import composed


def frames(task, symbols=3, test_length=25):
    lengths = [5 if task == "associative_recall" else 3, 13]
    make = getattr(causal_tasks, task)
    return make(0, symbols, lengths, [test_length], sizes=[60, 20, 20]).read()


def strings(frame):
    """The question and the answer of each string, as lists, and its label."""
    for text, label in zip(frame["text"], frame["label"], strict=True):
        yield *(part.split() for part in text.split(" | ")), label


@pytest.mark.parametrize("task", ["copy", "reverse"])
def test_an_answer_repeats_its_question(task):
    found = frames(task)
    for split, lengths in {"train": {3, 5, 7, 9, 11, 13}, "test@25": {25}}.items():
        seen = set()
        for question, answer, label in strings(found[split]):
            assert answer == (question[::-1] if task == "reverse" else question)
            assert "abc"[label] == answer[0]
            assert set(question) <= set("abc")
            seen.add(len(question) + 1 + len(answer))
        assert seen == lengths
    letters = "".join(found["test@25"]["text"]).replace(" ", "").replace("|", "")
    assert min(letters.count(letter) / len(letters) for letter in "abc") > 0.25


def test_an_answer_recalls_the_digit_of_each_letter():
    found = frames("associative_recall")
    for split in ("train", "validation", "test@25"):
        orders = []
        for question, answer, label in strings(found[split]):
            digits = dict(zip(question[::2], question[1::2], strict=True))
            assert len(digits) == len(question) // 2  # every letter once
            assert dict(zip(answer[::2], answer[1::2], strict=True)) == digits
            assert answer[1] == "012"[label]
            orders.append(question[::2] == answer[::2])
        assert not all(orders)


@pytest.mark.parametrize("task", ["copy", "reverse", "associative_recall"])
def test_held_out_strings_of_a_length_are_in_no_other_split(task):
    found = frames(task, symbols=5)
    for split in ("validation", "test", "test@25"):
        held = {text for text in found[split]["text"] if len(text.split()) >= 9}
        assert held
        assert not held & set(found["train"]["text"])


def test_bad_arguments_are_one_line():
    for task, options, message in (
        ("copy", {"symbols": 27}, "data.corpus.symbols: must be between 2 and 26, the symbols from "
         "a to z"),
        ("associative_recall", {"symbols": 11}, "between 2 and 10, the symbols from 0 to 9"),
        ("copy", {"test_length": 24}, "copy have 3, 5, 7, ... symbols (got 24)"),
        ("associative_recall", {"test_length": 27}, "have 5, 9, 13, ... symbols"),
        ("associative_recall", {"test_length": 109}, "26 letters, so at most 105 symbols"),
    ):  # fmt: skip
        assert message in refusal(frames, task, **options)


def test_each_target_of_overlapping_windows_counts_once_and_sees_enough():
    split = tokenized(list(range(2, 20)))
    windows = Windows(split, 6, stride=2)
    batch = windows[np.arange(len(windows))]
    counted = batch.labels[batch.labels != IGNORED].tolist()
    assert counted == list(range(3, 3 + len(counted)))
    assert len(counted) == 6 + 2 * (len(windows) - 1) == 16
    assert batch.labels[1].tolist() == [IGNORED] * 4 + [9, 10]
    assert batch.ids[1].tolist() == [4, 5, 6, 7, 8, 9]
    assert batch.n_tokens == 6 * len(windows)


def test_a_text_shorter_than_a_window_is_refused():
    assert len(Windows(tokenized([2, 3, 4, 5]), 3)) == 1
    with pytest.raises(ValueError, match="4 tokens"):
        Windows(tokenized([2, 3, 4, 5]), 4)


def test_targets_after_the_bar_by_hand():
    bar, n = 9, IGNORED
    answers = Answers(tokenized([2, 3, bar, 2, 3], [4, bar, 4]), 5, bar)
    batch = answers[np.array([0, 1])]
    assert batch.ids.tolist() == [[2, 3, bar, 2], [4, bar, 4, 0]]
    assert batch.labels.tolist() == [[n, n, 2, 3], [n, 4, n, n]]
    assert batch.lengths.tolist() == [4, 2]
    pairs = Answers(tokenized([2, 3, 4, 5, bar, 4, 5, 2, 3]), 9, bar, every=2)
    batch = pairs[np.array([0])]
    assert batch.labels.tolist() == [[n, n, n, n, n, 5, n, 3]]
    assert batch.labels.dtype == torch.int64


def test_a_task_without_answers_is_refused(tmp_path):
    own = ["task=language_model", "data=parity", "data.targets=answers", f"cache_dir={tmp_path}"]
    own += ["data.corpus.sizes=[20,20,20]", "data.corpus.lengths=[2,8]", "data.max_len=8"]
    line = refusal(build_data, checked(composed(*own, "data.test_lengths=[]")))
    assert line.startswith("data.targets: parity has classes and no answers (")
