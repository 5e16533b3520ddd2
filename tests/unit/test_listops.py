"""ListOps: its values against other evaluators, its limits, and its distribution."""

import json
import random
import re
from collections import Counter
from itertools import islice

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from posfuse.data.corpora import SPLITS, load
from posfuse.data.listops import evaluate, listops
from posfuse.data.splits import splits
from posfuse.data.token_store import open_store
from posfuse.runs.checks import checked
from refusals import refusal
from small_runs import composed

OPERATORS = ["MIN", "MAX", "MED", "SM"]
LRA = {"max_depth": 10, "max_arguments": 10, "digit_probability": 0.75, "lengths": [501, 1999]}
SHORT = LRA | {"max_depth": 4, "max_arguments": 5, "lengths": [8, 60], "sizes": [600, 40, 50]}


def documents(split_seed: int = 0, **options) -> pd.DataFrame:
    return pd.concat(listops(split_seed, **SHORT | options).read(), names=["split", "row"])


def tree(text: str):
    """The expression as JSON: a digit, or a list of the operator's name and its arguments."""
    quoted = re.sub(r"\[(\w+)", r'["\1"', text)
    return json.loads(quoted.replace(" ]", "]").replace(" ", ","))


def value(node) -> int:
    """From the leaves up by recursion, the median by the definition of Long Range Arena."""
    if not isinstance(node, list):
        return node
    name, *below = node
    arguments = [value(child) for child in below]
    if name == "MED":
        return int(np.median(arguments))
    if name == "SM":
        return int(str(sum(arguments))[-1])
    return sorted(arguments)[0 if name == "MIN" else -1]


def nodes(node, depth: int = 1):
    """Every node with its depth, an operator before its arguments."""
    yield depth, node
    for argument in node[1:] if isinstance(node, list) else []:
        yield from nodes(argument, depth + 1)


def operators(whole) -> list[list]:
    return [node for _, node in nodes(whole) if isinstance(node, list)]


def n_tokens(whole) -> int:
    return len([*nodes(whole)]) + len(operators(whole))  # each operator has an end


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[MAX 4 [MED 1 9 8 3 ] [SM 7 5 ] 0 ]", 5),
        ("[MED 0 9 ]", 4),  # 4.5, cut
        ("[SM 9 9 9 ]", 7),
        ("[MED [MIN 3 1 ] [MAX 3 1 ] [SM 3 1 ] [MED 3 1 ] ]", 2),  # 1 3 4 2
    ],
)
def test_worked_by_hand(text: str, expected: int) -> None:
    assert evaluate(text.split()) == value(tree(text)) == expected


def operations(inner):
    arguments = st.lists(inner, min_size=2, max_size=10).map(" ".join)
    return st.builds("[{} {} ]".format, st.sampled_from(OPERATORS), arguments)


@given(st.recursive(st.integers(0, 9).map(str), operations, max_leaves=40))
def test_any_expression_has_the_value_that_recursion_finds(text: str) -> None:
    assert evaluate(text.split()) == value(tree(text))


LIMITS = {"max_depth": st.integers(3, 6), "max_arguments": st.integers(3, 7),
          "digit_probability": st.floats(0.3, 0.8)}  # fmt: skip
RARE = {"max_depth": 6, "max_arguments": 7, "digit_probability": 0.3125}


@settings(max_examples=20)
@given(st.integers(0, 99), st.fixed_dictionaries(LIMITS), st.integers(4, 12), st.integers(6, 46))
@example(1, RARE, 9, 12)  # 26 of 20,000 expressions are of these lengths
def test_any_limits_are_kept(seed, limits, shortest, more) -> None:
    lengths = [shortest, shortest + more]
    found = documents(seed, lengths=lengths, sizes=[20, 3, 4], **limits)
    trees = found["text"].map(tree)
    assert found["label"].tolist() == trees.map(value).tolist()
    assert found["text"].str.split().str.len().between(*lengths).all()
    assert max(depth for whole in trees for depth, _ in nodes(whole)) <= limits["max_depth"]
    sizes = {len(node) - 1 for whole in trees for node in operators(whole)}
    assert sizes <= set(range(2, limits["max_arguments"] + 1))


def test_the_splits_have_their_sizes_and_share_no_document() -> None:
    """[OP a b ] alone: 400 exist, and 300 draws at random would hold many twice."""
    few = {"max_depth": 2, "max_arguments": 2, "lengths": [4, 4], "sizes": [250, 20, 30]}
    for options in (SHORT, few):
        found = documents(**options)
        assert found.groupby("split").size()[list(SPLITS)].tolist() == options["sizes"]
        assert found["text"].is_unique


def test_documents_follow_from_split_seed_alone() -> None:
    first, again, other = documents(3), documents(3), documents(4)
    assert first.equals(again)
    assert not set(first["text"]) & set(other["text"])
    fingerprints = {
        listops(**{"split_seed": 0} | SHORT | change).fingerprint
        for change in ({}, {"split_seed": 1}, {"max_depth": 5}, {"max_arguments": 6},
                       {"digit_probability": 0.7}, {"lengths": [8, 61]}, {"sizes": [600, 40, 51]})
    }  # fmt: skip
    assert len(fingerprints) == 7


def drawn_plainly(draw: random.Random, level: int, limits: dict):
    """The published description, word by word: no early stop, one node at a time."""
    if level == limits["max_depth"] or draw.random() < limits["digit_probability"]:
        return draw.randrange(10)
    below = range(draw.randint(2, limits["max_arguments"]))
    name = draw.choice(OPERATORS)
    return [name, *(drawn_plainly(draw, level + 1, limits) for _ in below)]


def test_the_distribution_is_that_of_the_published_description() -> None:
    """Means over 2,000 documents of either; 24 of them, so one pair of seeds in 6,000 fails."""
    draw, limits = random.Random(0), SHORT | {"lengths": [15, 40]}
    endless = (drawn_plainly(draw, 1, limits) for _ in iter(int, 1))
    plain = list(islice((t for t in endless if 15 <= n_tokens(t) <= 40), 2000))
    ours = documents(lengths=[15, 40], sizes=[2000, 1, 1])["text"][:2000].map(tree)

    def features(whole) -> dict[str, float]:
        depths, every = zip(*nodes(whole), strict=True)
        names = Counter(node[0] for node in operators(whole))
        return {
            "tokens": n_tokens(whole),
            "depth": max(depths),
            "operators": len(operators(whole)),
            "arguments of the top": len(whole) - 1,
            "digits of the top": sum(isinstance(node, int) for node in whole[1:]),
            "sum of digits": sum(node for node in every if isinstance(node, int)),
            **{name: names[name] for name in OPERATORS},
            **{f"top {name}": whole[0] == name for name in OPERATORS},
            **{f"value {digit}": value(whole) == digit for digit in range(10)},
        }

    mine, theirs = (pd.DataFrame(map(features, trees)).astype(float) for trees in (ours, plain))
    z = (mine.mean() - theirs.mean()) / np.sqrt((mine.var() + theirs.var()) / 2000)
    assert z.abs().max() < 4.5, z


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("max_arguments", 1, "must be at least 2 (got 1)"),
        ("max_depth", 1, "must be at least 2 (got 1)"),
        ("digit_probability", 1.0, "must be at least 0 and below 1 (got "),
        ("lengths", [60, 8], "must be [min, max] in tokens, 4 <= min <= max"),
        ("lengths", [8], "must be [min, max] in tokens, 4 <= min <= max"),
        ("sizes", [9, 0, 9], "must be three numbers of at least 1 (got"),
        ("sizes", [9, 9], "must be three numbers of at least 1 (got"),
    ],
)
def test_impossible_limits_are_refused_before_anything_is_drawn(key, value, expected) -> None:
    message = refusal(listops, 0, **SHORT | {key: value})
    assert message.startswith(f"data.corpus.{key}: {expected}")


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({"max_depth": 3, "lengths": [36, 40]}, "only 0 of 20000 expressions are new"),
        ({"max_depth": 2, "max_arguments": 2, "lengths": [4, 4]}, "with 400 of 690 documents"),
    ],
)
def test_limits_that_almost_no_expression_meets_are_an_error(options, found: str) -> None:
    message = refusal(listops(0, **SHORT | options).read)
    assert found in message
    assert "; change lengths" in message


def test_poll_can_end_the_drawing() -> None:
    """A whole corpus takes a minute."""
    cfg = checked(composed("data=listops", "data.corpus.sizes=[50,5,5]")).data
    with pytest.raises(StopIteration):
        splits(load(cfg), cfg, poll=iter([None] * 20).__next__)


def test_the_configured_corpus_is_long_range_arenas_and_nothing_is_cut(tmp_path) -> None:
    whole = checked(composed("data=listops")).data
    arguments = {k: v for k, v in whole.corpus.items() if k not in ("_target_", "split_seed")}
    assert arguments == LRA | {"sizes": [96_000, 2_000, 2_000]}
    assert whole.max_len >= arguments["lengths"][1]
    cfg = checked(composed("data=listops", "data.corpus.sizes=[300,30,30]")).data
    frames, names = splits(load(cfg), cfg)
    assert names == list("0123456789")
    store = open_store(cfg, tmp_path)
    assert store.vocabulary_size == 2 + 4 + 1 + 10
    assert store.unknown_share == dict.fromkeys(SPLITS, 0.0)
    part = store.splits["test"]
    first = store.words(part.ids[: part.offsets[1]])
    assert " ".join(first).upper() == next(frames["test"].texts())
