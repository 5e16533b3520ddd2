"""The F1 of a classifier: the numbers of torchmetrics, in memory that grows with the classes."""

import pytest
import torch
from torchmetrics.classification import MulticlassF1Score

from posfuse.training.classifier import MacroF1


@pytest.fixture(autouse=True)
def deterministic():
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(before)


def test_f1_by_hand():
    """Class 0: 1 of 2 predictions and 1 of 1 label; class 1: none of 0 and 1; class 2: 1 of 1."""
    f1 = MacroF1(4, average="macro")
    predicted, labels = torch.tensor([0, 0, 2]), torch.tensor([0, 1, 2])
    f1.update(torch.nn.functional.one_hot(predicted, 4).float(), labels)
    assert f1.compute() == pytest.approx((2 / 3 + 0 + 1) / 3)  # class 3 does not occur


@pytest.mark.parametrize("n_classes", [2, 5, 40])
def test_f1_is_that_of_torchmetrics(n_classes):
    draws = torch.Generator().manual_seed(n_classes)
    ours, theirs = (kind(n_classes, average="macro") for kind in (MacroF1, MulticlassF1Score))
    for n in (1, 7, 32):
        logits = torch.randn(n, n_classes, generator=draws).round()  # with ties
        labels = torch.randint(n_classes, (n,), generator=draws)
        for metric in (ours, theirs):
            metric.update(logits, labels)
        assert torch.equal(ours.compute(), theirs.compute())


def test_many_classes_need_no_memory_for_pairs_of_classes():
    f1 = MacroF1(200_000, average="macro")  # 640 GB for the pairs of classes of two documents
    f1.update(torch.zeros(2, 200_000), torch.tensor([0, 1]))
    assert f1.compute() == pytest.approx((2 / 3) / 2)
