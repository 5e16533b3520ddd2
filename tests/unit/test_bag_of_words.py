"""TF-IDF and logistic regression on the run's own tokens, once per corpus."""

import json
import re
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression

from posfuse.config import CONF_DIR
from posfuse.data.corpora import folder, is_task
from posfuse.evidence import bag_of_words as module
from posfuse.evidence.bag_of_words import BagOfWords, bag_of_words, bags_of_words, task_bags
from posfuse.report.sections.paper import without_order
from posfuse.runs import configs, identity
from posfuse.runs.checks import checked
from posfuse.runs.measurements import CLASSES
from refusals import refusal
from small_runs import composed, small_config, write_corpus


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("bag") / "corpus")


def fitted_bag(cfg, **settings):
    """The bag of words of a config; `settings` replace those of its record."""
    return bag_of_words(cfg, identity.settings(cfg) | settings, Path())


@pytest.fixture(scope="module")
def fitted(corpus):
    """A config and its bag of words."""
    own = f"cache_dir={corpus.parent / 'own cache'}"
    cfg = small_config(corpus, "data.vocabulary.min_count=1", "data.max_len=9", own)
    return cfg, fitted_bag(cfg)


def test_a_corpus_shows_little_about_position_if_the_bag_wins_in_all_settings():
    cells = pd.DataFrame(
        {"data": ["story", "story", "news"], "variant": ["scale=1", "scale=8", ""]}
    )
    cells["mean"] = [60.0, 20.0, 90.0]  # no model learns at scale 8
    bags = {key: BagOfWords(92.0 if key[0] == "news" else 21.0, 100)
            for key in zip(cells["data"], cells["variant"], strict=True)}  # fmt: skip
    (line,) = without_order(cells, bags)
    assert line.startswith("news: a bag of words reaches 92.00 %, at least as much as every fusion")
    assert without_order(cells, {}) == []
    other = cells.assign(variant=["scale=1", "scale=8", "scale=8"], data="story")
    bags = {
        ("story", "scale=1"): BagOfWords(70.0, 100),
        ("story", "scale=8"): BagOfWords(92.0, 100),
    }
    (line,) = without_order(other, bags)
    assert "reaches 70.00 to 92.00 %, in each setting at least as much as every fusion" in line


def test_a_task_of_ones_own_has_none():
    """Its targets may not be the labels of the corpus."""
    runs = pd.DataFrame({"data": ["story"], "variant": [""], "seed": [0], "folder": ["absent"]})
    assert bags_of_words(runs.assign(**{module.OWN_TASK: "my_tasks.Mine"})) == ({}, [])
    assert bags_of_words(runs)[1]


def test_it_equals_scikit_learn_on_the_texts(corpus, fitted):
    """TfidfVectorizer on the words that are read; unseen words are one word, <unk>."""
    _, found = fitted
    train, test = (pd.read_parquet(corpus / f"{split}.parquet") for split in ("train", "test"))
    known = {word for text in train["text"] for word in text.split()}

    def words(text):
        return [word if word in known else "<unk>" for word in text.split()[:9]]

    # The token store's vocabulary also has <pad> and <unk>. A word that never occurs is a column of
    # zeros and changes nothing.
    vectors = TfidfVectorizer(analyzer=words)
    model = LogisticRegression(max_iter=1000).fit(
        vectors.fit_transform(train["text"]), train["label"]
    )
    predicted = model.predict(vectors.transform(test["text"]))
    assert found.accuracy == pytest.approx(100 * (predicted == test["label"]).mean())
    assert found.documents == 20
    assert found.accuracy > 50  # of three classes; half of the words show the class


def test_a_corpus_is_fitted_once_and_again_when_the_cache_is_damaged(corpus, fitted, monkeypatch):
    cfg, found = fitted
    cache = Path(cfg.cache_dir)
    (cached,) = cache.glob("*.bag_of_words.json")
    with monkeypatch.context() as patched:
        patched.setattr(module, "_fit", lambda _: pytest.fail("fitted again"))
        assert fitted_bag(cfg) == found
        # Settings that cannot change the result do not change the cache key.
        assert fitted_bag(cfg, **{"model.d_model": 99}) == found
    monkeypatch.setattr(module, "_fit", lambda _: found)
    damaged = [
        {"accuracy": None, "documents": 1},
        {"accuracy": 101, "documents": 1},
        {"accuracy": 50, "documents": []},
        {"accuracy": 50, "documents": 1, "with_ends": 5},
    ]
    for text in ("", "{}", "[1]", *map(json.dumps, damaged)):
        cached.write_text(text)
        assert fitted_bag(cfg) == found
        assert json.loads(cached.read_text())["accuracy"] == found.accuracy
    fitted_bag(small_config(corpus, "data.max_len=2", f"cache_dir={cache}"))
    assert len(list(cache.glob("*.bag_of_words.json"))) == 2


def runs(*folders, **texts):
    return pd.DataFrame(
        {
            "data": [folder.name for folder in folders],
            "folder": list(map(str, folders)),
            "variant": "",
            "seed": range(len(folders)),
            "configuration": [json.dumps(texts)] * len(folders),
        }
    )


def test_with_a_split_for_each_seed_it_is_the_mean_over_their_splits(tmp_path):
    asked = ["data=missing_palindrome", "data.corpus.sizes=[600,60,300]", f"cache_dir={tmp_path}"]
    folders, alone = [tmp_path / str(seed) for seed in (0, 1, 2)], []
    for seed, run in enumerate(folders):
        cfg = checked(composed(*asked, "data.split_seed=seed", f"seed={seed}"))
        run.mkdir()
        configs.write_config(run, cfg)
        alone.append(fitted_bag(checked(composed(*asked, f"data.split_seed={seed}"))))
    given = runs(*folders).assign(data="missing_palindrome")
    (found,) = bags_of_words(pd.concat([given, given]))[0].values()
    for name in ("accuracy", "with_ends"):
        by_seed = [getattr(one, name) for one in alone]
        assert len(set(by_seed)) > 1
        assert getattr(found, name) == pytest.approx(np.mean(by_seed))
    assert found.documents == 300


def test_a_corpus_that_cannot_be_loaded_is_one_line_and_the_others_are_fitted(corpus, tmp_path):
    folders = [tmp_path / name for name in ("good", "moved", "odd", "none")]
    for run, path in zip(folders[:2], (corpus, tmp_path / "nowhere"), strict=True):
        run.mkdir()
        cfg = small_config(corpus)
        cfg.data.name, cfg.data.path = run.name, str(path)
        configs.write_config(run, cfg)
    folders[2].mkdir()
    odd = "data: {name: odd, corpus: {_target_: no.such}}\nencoding: {name: a}\n"
    (folders[2] / "config.yaml").write_text(odd)
    given = runs(*folders, **{"data.path": folder(corpus).fingerprint})
    found, problems = bags_of_words(given)
    assert list(found) == [("good", "")]
    assert [line.split(":")[0] for line in problems] == ["moved", "odd", "none"]
    assert all("\n" not in line for line in problems)


@pytest.mark.parametrize("error", [OSError, TypeError, KeyError, RuntimeError, MemoryError])
def test_an_error_of_any_type_in_loading_is_one_line_but_for_memory(corpus, monkeypatch, error):
    def load(*_, **__):
        raise error("two\nlines")

    monkeypatch.setattr(module, "open_store", load)
    cfg = small_config(corpus, "data.max_len=3")
    if error is MemoryError:
        with pytest.raises(MemoryError):
            fitted_bag(cfg)
    else:
        assert "its texts cannot be read (" in refusal(fitted_bag, cfg)


def test_other_texts_than_the_runs_give_no_bag_of_words_and_no_cache(tmp_path):
    corpus, run = write_corpus(tmp_path / "corpus"), tmp_path / "tiny"
    run.mkdir()
    cfg = small_config(corpus)
    configs.write_config(run, cfg)
    given = runs(run, **{"data.path": folder(corpus).fingerprint})
    write_corpus(corpus, seed=1)
    found, (line,) = bags_of_words(given)
    assert found == {}
    assert f"({corpus}: its files are not those of the run {run}; " in line
    assert not list(tmp_path.rglob("*.bag_of_words.json"))
    write_corpus(corpus)
    assert bags_of_words(given)[1] == []
    write_corpus(corpus, seed=1)
    assert bags_of_words(given)[1] == []  # from the cache: it is of the run's texts


def test_the_code_of_ones_own_corpus_must_be_that_of_the_run(tmp_path, monkeypatch, own_module):
    """A later sweep over edited code gets its own bag, and a run of earlier code gets none."""
    corpus = write_corpus(tmp_path / "texts")
    text = f"from posfuse.data.corpora import folder\ndef mine(): return folder({str(corpus)!r})\n"
    code = own_module("edited_corpus", text)
    cfg = small_config(corpus)
    cfg.data.path, cfg.data.corpus = None, {"_target_": "edited_corpus.mine"}
    run = tmp_path / "tiny"
    run.mkdir()
    Path(cfg.cache_dir).mkdir()
    configs.write_config(run, cfg)
    settings, kept = json.dumps(identity.settings(cfg)), [50.0, 60.0]
    monkeypatch.setattr(module, "_fit", lambda _: BagOfWords(kept.pop(0), 9))

    def bags(code):
        return bags_of_words(runs(run).assign(configuration=settings, code=code))

    def edit(text):
        code.write_text(text)
        sys.modules.pop("edited_corpus", None)  # as in another process
        return identity.own_code(cfg)["code"]

    first, second = edit(text), edit(text + "# edited\n")
    found, (line,) = bags(first)
    assert found == {}
    assert f"({run}: edited_corpus.py or its texts have changed since the run; " in line
    assert bags(second)[0]["tiny", ""].accuracy == 50
    edit(text)
    assert bags(first)[0]["tiny", ""].accuracy == 60
    assert bags(second)[0]["tiny", ""].accuracy == 50  # from the cache: it is of the run's texts
    assert bags(None)[0]["tiny", ""].accuracy == 60  # an older record


def test_a_study_shows_no_bag_of_ones_own_strings_that_cannot_be_loaded(tmp_path):
    cfg = checked(composed("data=even_pairs", f"cache_dir={tmp_path}"))
    cfg.data.corpus["_target_"] = "no.such"
    configs.write_config(tmp_path, cfg)
    record = {"settings": {}, "task": {"predictions": CLASSES}, "code": "1"}
    assert task_bags(tmp_path, record) == {}


@pytest.mark.slow
def test_a_task_also_has_the_pair_of_its_ends(tmp_path):
    """A few of the shortest pairs and words tell the label."""
    sizes = "data.corpus.sizes=[6000,60,3000]"
    cfg = checked(composed("data=even_pairs", sizes, f"cache_dir={tmp_path}"))
    whole = fitted_bag(cfg)
    assert (whole.accuracy < 60, whole.with_ends) == (True, 100)
    assert fitted_bag(cfg) == whole  # from the cache
    cfg.data.max_len = 8  # the checks refuse to cut strings, unless the task is a user's own
    assert fitted_bag(cfg).with_ends < 65  # most last symbols are not read


@pytest.mark.slow
def test_the_docs_have_the_accuracies_of_every_task(tmp_path):
    page = (CONF_DIR.parent / "docs/sweeps.md").read_text()
    rows = re.findall(r"^\| `(\w+)` .* \| ([\d.]+) \| ([\d.]+) \|$", page, re.MULTILINE)
    files = (CONF_DIR / "data").glob("*.yaml")
    tasks = {file.stem for file in files if "posfuse.data.tasks." in file.read_text()}
    assert {name for name, *_ in rows} == tasks
    for name, *shown in rows:
        bag = fitted_bag(checked(composed(f"data={name}", f"cache_dir={tmp_path}")))
        assert [bag.accuracy, bag.with_ends] == pytest.approx([*map(float, shown)], abs=0.3), name


def test_a_corpus_whose_texts_changed_is_fitted_again(tmp_path, monkeypatch):
    sizes = "data.corpus.sizes=[60,9,9]"
    cfg = checked(composed("data=even_pairs", sizes, f"cache_dir={tmp_path}"))
    bags = iter([module.BagOfWords(50, 9, 50), module.BagOfWords(60, 9, 60)])
    monkeypatch.setattr(module, "_fit", lambda _: next(bags))
    for numbers, accuracy in (({}, 50), ({}, 50), ({cfg.data.corpus["_target_"]: 1}, 60)):
        monkeypatch.setattr(module, "PART_NUMERICS", numbers)
        assert fitted_bag(cfg).accuracy == accuracy


def test_a_text_has_no_pair_of_ends(corpus, fitted):
    assert fitted[1].with_ends is None
    # A text of two words is no task, though a folder replaces the corpus of one.
    cfg = small_config(corpus)
    cfg.data.corpus = {"test_lengths": []}
    assert not is_task(cfg.data)
