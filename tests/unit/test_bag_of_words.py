"""TF-IDF and logistic regression: on the run's own tokens, once a corpus."""

import json

import numpy as np
import pandas as pd
import pytest
from omegaconf import OmegaConf
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression

from posfuse.analysis.evidence import bag_of_words as module
from posfuse.analysis.evidence.bag_of_words import bag_of_words, bags_of_words
from posfuse.errors import InputError
from posfuse.runs import records
from small_runs import small_config, write_corpus


@pytest.fixture
def corpus(tmp_path):
    return write_corpus(tmp_path / "corpus")


def test_it_is_what_scikit_learn_makes_of_the_texts(corpus):
    """The same from the words themselves, a second route: unseen words are one word, <unk>."""
    cfg = small_config(corpus, "data.vocabulary.min_count=1")
    found = bag_of_words(cfg, records.settings(cfg))
    train, test = (pd.read_parquet(corpus / f"{split}.parquet") for split in ("train", "test"))
    known = {word for text in train["text"] for word in text.split()}

    def words(text):
        return [word if word in known else "<unk>" for word in text.split()]

    # The token store's vocabulary has <pad> and <unk> too; a word without a count is a column of
    # zeros and changes nothing.
    vectors = TfidfVectorizer(analyzer=words)
    model = LogisticRegression(max_iter=1000).fit(
        vectors.fit_transform(train["text"]), train["label"]
    )
    predicted = model.predict(vectors.transform(test["text"]))
    assert found.accuracy == pytest.approx(100 * (predicted == test["label"]).mean())
    assert found.documents == 20
    assert found.accuracy > 50  # of three classes, and half of the words tell


def test_order_does_not_matter(corpus):
    cfg = small_config(corpus)
    before = bag_of_words(cfg, records.settings(cfg))
    for split in ("train", "test"):
        frame = pd.read_parquet(corpus / f"{split}.parquet")
        frame["text"] = [" ".join(reversed(text.split())) for text in frame["text"]]
        frame.to_parquet(corpus / f"{split}.parquet")
    after = bag_of_words(cfg, records.settings(cfg))
    assert after.accuracy == pytest.approx(before.accuracy)


def test_it_is_fitted_once_and_again_when_damaged(corpus, monkeypatch):
    cfg = small_config(corpus)
    settings = records.settings(cfg)
    found = bag_of_words(cfg, settings)
    (kept,) = (corpus.parent / "cache").glob("*.bag_of_words.json")
    with monkeypatch.context() as patched:
        patched.setattr(module, "_fit", lambda _: pytest.fail("fitted again"))
        assert bag_of_words(cfg, settings) == found
        # What cannot change it does not miss it.
        assert bag_of_words(cfg, settings | {"model.d_model": 99}) == found
    for text in ("", "{}", "[1]", '{"accuracy": "high", "documents": 1}'):
        kept.write_text(text)
        assert bag_of_words(cfg, settings) == found
    assert json.loads(kept.read_text())["accuracy"] == found.accuracy


def test_another_corpus_is_fitted_anew(corpus):
    cfg = small_config(corpus)
    bag_of_words(cfg, records.settings(cfg))
    shorter = small_config(corpus, "data.max_len=2")
    bag_of_words(shorter, records.settings(shorter))
    assert len(list((corpus.parent / "cache").glob("*.bag_of_words.json"))) == 2


def runs(*folders):
    return pd.DataFrame(
        {
            "data": [folder.name for folder in folders],
            "folder": list(map(str, folders)),
            "variant": "",
            "configuration": ["{}"] * len(folders),
        }
    )


def test_what_cannot_be_had_is_one_line_and_stops_no_other(corpus, tmp_path):
    for name, path in (("good", corpus), ("moved", tmp_path / "nowhere")):
        (tmp_path / name).mkdir()
        cfg = small_config(corpus)
        cfg.data.name, cfg.data.path = name, str(path)
        OmegaConf.save(OmegaConf.structured(cfg), tmp_path / name / "config.yaml")
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd" / "config.yaml").write_text(
        "data: {name: odd, corpus: {_target_: no.such}}\nencoding: {name: a}\n"
    )
    found, problems = bags_of_words(runs(*(tmp_path / n for n in ("good", "moved", "odd", "none"))))
    assert list(found) == [("good", "")]
    assert [line.split(":")[0] for line in problems] == ["moved", "odd", "none"]
    assert all("\n" not in line for line in problems)


@pytest.mark.parametrize("text", ["", "a: [", "seed: many", "[]", "unknown_key: 1"])
def test_a_config_that_does_not_fit_is_named(text, tmp_path):
    (tmp_path / "config.yaml").write_text(text)
    with pytest.raises(InputError, match=r"config\.yaml") as error:
        records.read_config(tmp_path)
    assert "\n" not in str(error.value)


def test_counts_are_the_words_of_each_document():
    from posfuse.data.token_store import TokenizedSplit

    split = TokenizedSplit(
        np.array([3, 3, 2, 4, 4, 4, 2]), np.array([0, 3, 3, 7]), np.array([0, 1, 0])
    )
    matrix = module._counts(split, 3, 5).toarray()
    assert matrix.tolist() == [[0, 0, 1, 2, 0], [0, 0, 0, 0, 0], [0, 0, 0, 0, 3]]
