"""data.word_order=shuffled: one fixed order of the tokens of each document, and what is refused."""

from dataclasses import replace

import numpy as np
import torch

from posfuse.data.batching import ResidentDocuments
from posfuse.runs import identity
from posfuse.training.build import build_data
from posfuse.training.masked_pretraining import first_phase
from small_runs import small_config, texts_of

SHUFFLED = ["data.name=tiny_shuffled", "data.word_order=shuffled"]
CUT = ["data.max_len=6", "data.test_lengths=[8,20]"]


def test_each_document_has_its_own_words_in_an_order_that_every_version_has(two_splits) -> None:
    """Of every split, after each cut. It follows from the row and the whole length of a document,
    so another seed, split or vocabulary does not change it. Nothing but the order changes."""
    plain = build_data(small_config(two_splits, *CUT))
    found = build_data(small_config(two_splits, *CUT, *SHUFFLED))
    cuts = {"train": 6, "validation": 6, "test": 6, "test@8": 8, "test@20": 20}
    assert list(found.documents) == list(cuts)
    for split, cut in cuts.items():
        documents = plain.documents[split]
        before, after = texts_of(plain, split), texts_of(found, split)
        assert before.keys() == after.keys()
        for row, whole in zip(documents.rows, documents.whole_lengths, strict=True):
            order = np.random.default_rng([row, whole]).permutation(min(cut, whole))
            assert after[row] == [before[row][i] for i in order]
    assert found.facts() == plain.facts()
    assert found.facts()["truncated_share"]["train"] > 0


def test_a_device_has_the_same_order(two_splits) -> None:
    documents = build_data(small_config(two_splits, *CUT, *SHUFFLED)).documents["train"]
    resident = ResidentDocuments(documents, 6, torch.device("cpu"))
    members = np.arange(9)
    width = documents[members].ids.shape[1]
    assert torch.equal(resident[members].ids[:, :width], documents[members].ids)


def test_the_order_identifies_a_run_and_its_first_phase(two_splits) -> None:
    cfg = small_config(two_splits, *SHUFFLED)
    plain = replace(cfg, data=replace(cfg.data, word_order="original"))
    assert identity.settings(cfg)["data.word_order"] == "shuffled"
    assert "data.word_order" not in identity.settings(plain)  # as in earlier records
    first, other = (identity.fingerprint(first_phase(each)) for each in (cfg, plain))
    assert first != other
