"""The memory of a training step at 4,096 tokens: the causal model's beside the classifier's."""

import pytest
import torch
import torch.nn.functional as F

from memory import Peak
from posfuse.model.language_model import LanguageModel
from posfuse.model.network import PositionClassifier, initialize
from posfuse.runs.checks import checked
from posfuse.training.build import build_backbone
from small_runs import composed

LENGTH, BYTES = 4096, 258
SCORES, LOGITS = 4 * LENGTH**2, 4 * LENGTH * BYTES  # bytes, of one document and head
SMALL = [
    "model.d_model=8", "model.n_heads=1", "model.n_layers=1", "model.d_ff=8",
    "task=language_model", "data=bbc_bytes", "data.test_lengths=[]", f"data.max_len={LENGTH}",
]  # fmt: skip
ENCODINGS = ("none", "rope", "alibi", "t5", "relative", "kerple", "fire", "tupe")


def of_a_step(cfg, causal):
    backbone = build_backbone(cfg)
    model = LanguageModel(backbone, BYTES) if causal else PositionClassifier(backbone, BYTES, 5)
    initialize(model, 0)
    ids = torch.randint(2, BYTES, (1, LENGTH))
    with Peak() as found:
        logits = model.train()(ids, torch.tensor([LENGTH]))
        targets = ids if causal else ids[:, 0] % 5
        F.cross_entropy(logits.flatten(0, -2), targets.flatten()).backward()
    return found


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_causal_step_takes_the_classifiers_memory_and_the_logits(encoding):
    cfg = checked(composed(*SMALL, f"encoding={encoding}"))
    mine, its = of_a_step(cfg, True), of_a_step(cfg, False)
    assert mine.held <= its.held + 3 * LOGITS  # they, their logarithms and their gradient
    assert mine.largest <= max(its.largest, LOGITS)
    if encoding != "alibi":  # its bias, the same for all documents, is stored once
        assert mine.largest < SCORES / 2
