"""data.word_order=shuffled: one fixed order of the tokens of each document, and what is refused."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch

from posfuse.data.batching import ResidentDocuments
from posfuse.errors import InputError
from posfuse.evidence.collect import collect
from posfuse.runs import identity
from posfuse.runs.checks import checked
from posfuse.runs.identity import LATER_KEYS
from posfuse.study import stages
from posfuse.study.spec import Study
from posfuse.training.build import build_data
from posfuse.training.masked_pretraining import first_phase
from small_pretrained import host_overrides, write_pretrained
from small_records import write_record
from small_runs import composed, small_config, write_corpus

SHUFFLED = ["data.name=tiny_shuffled", "data.word_order=shuffled"]
CUT = ["data.max_len=6", "data.test_lengths=[8,20]"]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Texts of 3 to 12 words, without a validation file: it is drawn from train."""
    folder = write_corpus(tmp_path_factory.mktemp("order") / "corpus")
    (folder / "validation.parquet").unlink()
    return folder


def texts_of(data, split: str) -> dict[int, list[str]]:
    """The words of each document of a split, by its row in its file."""
    documents = data.documents[split]
    ids = [documents[np.array([i])].ids[0].tolist() for i in range(len(documents))]
    words = map(data.store.words, ids)
    return {int(row): list(text) for row, text in zip(documents.rows, words, strict=True)}


def test_each_document_has_its_own_words_in_another_order(corpus) -> None:
    """Of every split and length, after the cut; nothing but the order changes."""
    plain = build_data(small_config(corpus, *CUT))
    found = build_data(small_config(corpus, *CUT, *SHUFFLED))
    assert list(found.documents) == ["train", "validation", "test", "test@8", "test@20"]
    for split in found.documents:
        before, after = texts_of(plain, split), texts_of(found, split)
        assert before.keys() == after.keys()
        assert all(Counter(before[row]) == Counter(after[row]) for row in before)
        moved = np.mean([before[row] != after[row] for row in before])
        assert moved > 0.8, split
    assert found.facts() == plain.facts()
    assert found.facts()["truncated_share"]["train"] > 0


def test_the_order_is_a_documents_own(corpus) -> None:
    """Another seed, split or vocabulary does not change it."""
    fixed = [*SHUFFLED, "data.split_seed=seed", "data.vocabulary.min_count=1"]
    one = build_data(small_config(corpus, *fixed, "seed=1"))
    two = build_data(small_config(corpus, *fixed, "seed=2", "data.vocabulary.source=all"))
    rows = [set(texts_of(data, "train")) for data in (one, two)]
    assert rows[0] != rows[1]
    both = [texts_of(one, "train"), texts_of(two, "train")]
    assert all(both[0][row] == both[1][row] for row in rows[0] & rows[1])


def test_the_order_is_the_same_in_every_version(corpus) -> None:
    """It follows from the row and the whole length of a document, for each cut alone."""
    plain = build_data(small_config(corpus, *CUT))
    found = build_data(small_config(corpus, *CUT, *SHUFFLED))
    for split, cut in (("train", 6), ("test@8", 8)):
        documents = plain.documents[split]
        before, after = texts_of(plain, split), texts_of(found, split)
        for row, whole in zip(documents.rows, documents.whole_lengths, strict=True):
            order = np.random.default_rng([row, whole]).permutation(min(cut, whole))
            assert after[row] == [before[row][i] for i in order]


def test_a_device_has_the_same_order(corpus) -> None:
    documents = build_data(small_config(corpus, *CUT, *SHUFFLED)).documents["train"]
    resident = ResidentDocuments(documents, 6, torch.device("cpu"))
    members = np.arange(9)
    width = documents[members].ids.shape[1]
    assert torch.equal(resident[members].ids[:, :width], documents[members].ids)


def test_only_a_shuffled_run_has_the_key(corpus) -> None:
    plain, found = small_config(corpus), small_config(corpus, *SHUFFLED)
    assert LATER_KEYS["data.word_order"] == plain.data.word_order == "original"
    assert "data.word_order" not in identity.settings(plain)
    assert identity.settings(found)["data.word_order"] == "shuffled"
    pretrained = [first_phase(c) for c in (found, replace(found, data=plain.data))]
    assert identity.fingerprint(pretrained[0]) != identity.fingerprint(pretrained[1])


ARXIV = ["data=arxiv", "data.word_order=shuffled"]


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (ARXIV,
         "data.name: the words of arxiv are shuffled (data.word_order=shuffled), so tables would "
         "mix the two; set data.name=arxiv_shuffled"),
        (["data=arxiv", "data.name=arxiv_shuffled"],
         "data.name: arxiv_shuffled ends in _shuffled, but data.word_order=original; set "
         "data.word_order=shuffled, or another name"),
        ([*ARXIV, "data.name=arxiv_shuffled", "task=language_model", "data.vocabulary.unit=bytes"],
         "data.word_order: shuffled is for classifiers, because a language model predicts the next "
         "word; remove it, or set task=classification"),
        (["data=even_pairs", "data.word_order=shuffled", "data.name=even_pairs_shuffled"],
         "data.word_order: shuffled is for texts, and even_pairs_shuffled is a generated task; "
         "remove it, or use texts"),
        ([*ARXIV, "data.name=arxiv_shuffled", "data.word_order=random"],
         "data.word_order: must be original or shuffled (got random)"),
    ],
)  # fmt: skip
def test_what_cannot_be_shuffled_is_refused(overrides, expected: str) -> None:
    with pytest.raises(InputError) as caught:
        checked(composed(*overrides))
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_pretrained_host_reads_no_shuffled_texts(tmp_path) -> None:
    overrides = ["data=folder", "data.path=x", *host_overrides(write_pretrained(tmp_path / "m"))]
    with pytest.raises(InputError, match=r"^data.word_order: .* its special tokens .* remove it$"):
        checked(composed(*overrides, "model=pretrained", *SHUFFLED))


def test_a_report_and_a_study_keep_both_apart(corpus, tmp_path) -> None:
    more = {"data.path": "digest"}
    for data, own in (("tiny", {}), ("tiny_shuffled", {"data.word_order": "shuffled"})):
        for seed in (0, 1):
            write_record(tmp_path, 0.5, "add", seed, data=data, settings={**more, **own})
    runs, problems = collect(tmp_path)
    assert problems == []
    assert runs["data"].tolist() == ["tiny", "tiny", "tiny_shuffled", "tiny_shuffled"]
    own = dict(pair.split("=") for pair in SHUFFLED)
    settings = {"data": "folder", "data.name": "tiny", "data.path": str(corpus)}
    found = stages.check_arms("mine", Study("q", settings=settings, arms={"a": {}, "b": own}), [])
    assert [s["data.name"] for s in found.values()] == ["tiny", "tiny_shuffled"]
