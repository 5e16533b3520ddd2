"""The tasks on strings: their labels, that nothing else tells the label, and their splits."""

import inspect
import re
from collections import Counter
from itertools import pairwise, product

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression

from posfuse.data import tasks
from posfuse.data.corpora import SPLITS, load
from posfuse.data.splits import splits
from posfuse.data.strings import Rule
from posfuse.data.token_store import open_store
from posfuse.runs.checks import checked
from refusals import refusal
from small_runs import composed

SHORTEST = {"parity": 1, "even_pairs": 2, "missing_duplicate": 4, "missing_palindrome": 4,
            "indirect_index": 6, "cycle_navigation": 2}  # fmt: skip
EVEN = ("missing_duplicate", "missing_palindrome")
every_task = pytest.mark.parametrize("name", SHORTEST)


def corpus(name: str, **options):
    given = {"split_seed": 0, "lengths": [SHORTEST[name], 40], "test_lengths": []}
    given |= {"symbols": 4, "farthest": 4} if name == "indirect_index" else {}
    return getattr(tasks, name)(**given | {"sizes": [800, 60, 60]} | options)


def frames(name: str, **options) -> dict[str, pd.DataFrame]:
    return corpus(name, **options).read()


def documents(name: str, **options) -> pd.DataFrame:
    return pd.concat(frames(name, **options), names=["split", "row"]).reset_index("split")


def rule_of(name: str, **options) -> Rule:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tasks, "strings", lambda rule, *_: rule)
        return corpus(name, **options)


def slow_label(name: str, symbols: list[str]) -> str:
    """The name of the class by a plain reading of the task, one symbol after another."""
    if name == "parity":
        return "odd" if symbols.count("b") % 2 else "even"
    if name == "even_pairs":
        changes = sum(a != b for a, b in pairwise(symbols))
        return "odd" if changes % 2 else "even"
    if name in EVEN:
        fitting = ""  # remains so for a string that is not of the task
        for guess in "ab":
            whole = "".join(symbols).replace("?", guess)
            first, second = whole[: len(whole) // 2], whole[len(whole) // 2 :]
            if second == (first if name == "missing_duplicate" else first[::-1]):
                fitting += guess
        return fitting
    if name == "indirect_index":
        before = list("".join(symbols).partition("x")[0])
        for _ in range(int(symbols[0])):
            label = before.pop()
        return label
    position = 0
    for step in symbols:
        position += {"-": 4, "0": 0, "+": 1}[step]
        position -= 5 if position >= 5 else 0
    return str(position)


@pytest.mark.parametrize(
    ("name", "text", "label"),
    [
        ("even_pairs", "aabbba", "even"),  # the examples of the authors' code: 0 is a, 1 is b
        ("even_pairs", "abababb", "odd"),
        ("missing_duplicate", "abbaa?ba", "b"),
        ("missing_palindrome", "?bbb", "b"),
        ("cycle_navigation", "+-0--", "3"),
        ("parity", "abbab", "odd"),
        ("indirect_index", "2badxc", "a"),
    ],
)
def test_the_slow_labels_are_those_worked_by_hand(name: str, text: str, label: str) -> None:
    assert slow_label(name, list(text)) == label


@every_task
def test_labels_are_right_at_every_length(name: str) -> None:
    for seed in range(3):
        made = corpus(name, split_seed=seed, test_lengths=[40, 80, 160])
        for split, frame in made.read().items():
            for text, label in zip(frame["text"], frame["label"], strict=True):
                assert made.label_names[label] == slow_label(name, text.split()), (split, text)


def every(name: str, length: int, symbols: int = 4) -> dict[str, set[str]]:
    """All strings of a task with this length, by their label; of indirect_index, those of so many
    letters and digits."""
    letters = "abcd"[:symbols]
    alphabets = dict.fromkeys(EVEN, "ab?") | dict.fromkeys(("parity", "even_pairs"), "ab")
    alphabets |= {"cycle_navigation": "-0+", "indirect_index": f"{letters}x{'1234'[:symbols]}"}
    found: dict[str, set[str]] = {}
    for drawn in product(alphabets[name], repeat=length):
        text = "".join(drawn)
        if name in EVEN and text.count("?") != 1:
            continue
        if name == "indirect_index":
            counts = [text.count(letter) for letter in letters]
            form = re.fullmatch(r"(\d)([a-d]+)x[a-d]*", text)
            if not form or len(form[2]) < int(form[1]) or max(counts) - min(counts) > 1:
                continue
        if label := slow_label(name, list(drawn)):
            found.setdefault(label, set()).add(text)
    return found


@pytest.mark.parametrize(
    ("name", "length", "more"),
    [("parity", 1, {}), ("parity", 5, {}), ("even_pairs", 2, {}), ("even_pairs", 5, {}),
     ("missing_duplicate", 4, {}), ("missing_duplicate", 8, {}), ("missing_palindrome", 6, {}),
     ("indirect_index", 6, {}), ("indirect_index", 5, {"symbols": 2, "farthest": 2}),
     ("cycle_navigation", 2, {}), ("cycle_navigation", 5, {})],
)  # fmt: skip
def test_every_string_of_a_class_is_drawn_and_their_number_is_known(name, length, more) -> None:
    """Of the shorter strings of indirect_index some letters are left over."""
    found = documents(name, lengths=[length, length], sizes=[9000, 10, 10], **more)
    whole = every(name, length, more.get("symbols", 4))
    drawn = set(found["text"].str.replace(" ", ""))
    assert drawn == set().union(*whole.values())
    counts = [len(texts) for texts in whole.values()]
    known = rule_of(name, **more).n_strings(length)
    if name == "cycle_navigation":  # a lower limit
        assert 0 < known <= min(counts)
    else:
        assert set(counts) == {known}


@every_task
def test_every_split_has_equal_classes_and_equal_lengths(name: str) -> None:
    n_classes = len(corpus(name).label_names)
    legal = range(SHORTEST[name], 41, 2 if name in EVEN else 1)
    sizes = [4 * n_classes * len(legal), 10 * n_classes, 101]
    found = frames(name, sizes=sizes, test_lengths=[40, 80])
    assert list(found) == [*SPLITS, "test@40", "test@80"]
    assert [len(frame) for frame in found.values()] == [*sizes, 101, 101]
    for split, frame in found.items():
        labels = Counter(frame["label"])
        assert len(labels) == n_classes
        assert max(labels.values()) - min(labels.values()) <= 1
        lengths = frame["text"].str.split().str.len()
        if split == "train":
            assert (pd.crosstab(lengths, frame["label"]).reindex(legal) == 4).all(axis=None)
        if "@" in split:
            assert set(lengths) == {int(split.partition("@")[2])}
        assert frame["label"].head(len(frame) // 2).nunique() == n_classes  # not sorted
        assert lengths.is_monotonic_increasing == ("@" in split)


def test_strings_of_validation_and_tests_are_in_no_other_split_if_there_are_enough() -> None:
    """256 strings a class at nine symbols; 90 of them are held out, and train has the rest."""
    found = frames("parity", lengths=[9, 9], test_lengths=[9], sizes=[20_000, 60, 60])
    texts = [set(frame["text"]) for frame in found.values()]
    assert [len(of_split) for of_split in texts] == [512 - 180, 60, 60, 60]
    assert len(set().union(*texts)) == 512
    crowded = frames("parity", lengths=[9, 9], sizes=[20_000, 200, 100])
    assert set(crowded["test"]["text"]) <= set(crowded["train"]["text"])


@every_task
def test_strings_follow_from_the_arguments(name: str) -> None:
    first, again, other = (documents(name, split_seed=seed) for seed in (3, 3, 4))
    assert first.equals(again)
    assert not first.equals(other)
    changes = [{}, {"split_seed": 1}, {"lengths": [8, 30]}, {"sizes": [800, 60, 61]},
               {"test_lengths": [80]}]  # fmt: skip
    changes += [{"symbols": 3}, {"farthest": 3}] if name == "indirect_index" else []
    assert len({corpus(name, **change).fingerprint for change in changes}) == len(changes)
    longer = documents(name, split_seed=3, test_lengths=[40, 80])
    assert longer[longer["split"].isin(SPLITS)].equals(first)


@pytest.mark.parametrize("name", sorted(SHORTEST.keys() - {"cycle_navigation"}))
def test_a_linear_function_of_counts_is_at_chance(name: str) -> None:
    """Three standard errors of 4,000 documents are 0.024."""
    found = frames(name, sizes=[8000, 60, 4000])
    (train, labels), (test, expected) = (
        ([[text.count(s) for s in "ab?cdx1234"] for text in part["text"]], part["label"])
        for part in (found["train"], found["test"])
    )
    chance = 1 / len(corpus(name).label_names)
    model = LogisticRegression(max_iter=1000).fit(train, labels)
    assert model.score(test, expected) == pytest.approx(chance, abs=0.03)


@pytest.mark.parametrize("name", EVEN)
def test_every_visible_place_shows_the_missing_symbol_in_half_of_the_strings(name: str) -> None:
    """At every length; four standard errors of 10,000 strings are 0.02."""
    for length in (4, 6, 10, 38, 40, 80):
        for label, letter in enumerate("ab"):
            labels = np.full(10_000, label)
            found = rule_of(name).draw(np.random.default_rng(length), labels, length)
            visible = (found != ord("?")).sum(axis=0)
            shares = (found == ord(letter)).sum(axis=0) / visible
            assert shares == pytest.approx([0.5] * length, abs=0.025)


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        ("parity", {"lengths": [40, 1]}, "corpus.lengths: must be [min, max] with 1 <= min <= max"),
        ("parity", {"lengths": [0, 9]}, "corpus.lengths: must be [min, max] with 1 <= min <= max, "
         "and a length of parity (1, 2, 3, ...) between them (got [0, 9])"),
        ("parity", {"lengths": [9]}, "corpus.lengths: must be [min, max] with 1 <= min <= max"),
        ("missing_duplicate", {"lengths": [7, 7]}, "corpus.lengths: must be [min, max] with 4 <= "
         "min <= max, and a length of missing_duplicate (4, 6, 8, ...) between them"),
        ("indirect_index", {"farthest": 7}, "corpus.lengths: must be [min, max] with 9 <= min"),
        ("indirect_index", {"symbols": 9}, "corpus.lengths: must be [min, max] with 11 <= min"),
        ("indirect_index", {"symbols": 24}, "corpus.symbols: must be between 2 and 23"),
        ("indirect_index", {"farthest": 0}, "corpus.farthest: must be a digit from 1 to 9 (got 0)"),
        ("parity", {"sizes": [9, 1, 9]}, "corpus.sizes: must be three numbers of at least 2"),
        ("cycle_navigation", {"sizes": [9, 9, 4]},
         "corpus.sizes: must be three numbers of at least 5"),
        ("parity", {"test_lengths": [40, 0]},
         "test_lengths: the strings of parity have 1, 2, 3, ... symbols (got 0)"),
        ("missing_duplicate", {"test_lengths": [81]},
         "test_lengths: the strings of missing_duplicate have 4, 6, 8, ... symbols"),
    ],
)  # fmt: skip
def test_impossible_arguments_are_refused_before_anything_is_drawn(name, options, expected):
    assert refusal(corpus, name, **options).startswith(f"data.{expected}")


def test_every_task_is_tested_here() -> None:
    functions = inspect.getmembers(tasks, inspect.isfunction)
    own = {name for name, f in functions if f.__module__ == tasks.__name__ and name[0] != "_"}
    assert own == set(SHORTEST)


@every_task
def test_the_configured_task_has_its_symbols_and_nothing_is_cut(name: str, tmp_path) -> None:
    cfg = checked(composed(f"data={name}")).data
    assert cfg.corpus["lengths"] == [SHORTEST[name], cfg.max_len]
    cfg.corpus["sizes"] = [400, 40, 40]
    found, names = splits(load(cfg), cfg)
    assert names == load(cfg).label_names
    store = open_store(cfg, tmp_path)
    assert store.unknown_share == dict.fromkeys(found, 0.0)
    symbols = {"parity": 2, "even_pairs": 2, "indirect_index": 4 + 4 + 1}.get(name, 3)
    assert store.vocabulary_size == 2 + symbols
    part = store.splits["test"]
    assert part.lengths.max() <= cfg.max_len
    first = store.words(part.ids[: part.offsets[1]])
    assert " ".join(first) == next(found["test"].texts())
