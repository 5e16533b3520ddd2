"""When memory runs out: the batch size that fits, found by trying."""

import traceback
from typing import Any

import lightning as L
import numpy as np
import torch
import torch.nn.functional as F
from lightning.pytorch.callbacks import Callback

from posfuse.data.batching import Batch
from posfuse.data.datamodule import TextDataModule
from posfuse.training.classifier import Classifier

ON_A_CPU = "DefaultCPUAllocator"  # all that tells it from another RuntimeError of torch


def is_out_of_memory(error: BaseException) -> bool:
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or ON_A_CPU in str(error)


class BatchThatFits(Callback):
    """Keeps in `found` what to say when memory ran out; None as long as it did not."""

    def __init__(self, data: TextDataModule) -> None:
        self.data = data
        self.found: str | None = None

    def on_exception(self, trainer: L.Trainer, module: Any, exception: BaseException) -> None:
        if not is_out_of_memory(exception):
            return
        traceback.clear_frames(exception.__traceback__)  # and with them what the step held
        key = "batch_size" if trainer.training else "eval_batch_size"
        size: int = getattr(self.data.cfg, key)
        smaller = fitting(trainer, module, self.data, size)
        cure = (
            f"data.{key}={smaller} fits"
            if smaller
            else "not even one document fits; lower data.max_len or the model's size"
        )
        self.found = f"out of memory at step {trainer.global_step} with data.{key}={size}; {cure}"


def fitting(
    trainer: L.Trainer, classifier: Classifier, data: TextDataModule, size: int
) -> int | None:
    """The largest of size / 2, size / 4, ... 1 that a step on the longest documents goes through
    with, of training or of evaluation as the trainer is at; None if none does."""
    splits = ["train"] if trainer.training else ["validation", "test"]
    documents = max((data.documents[s] for s in splits), key=lambda d: int(d.lengths.max()))
    longest = np.argsort(-documents.lengths, kind="stable")
    classifier.zero_grad(set_to_none=True)
    for optimizer in trainer.optimizers:
        optimizer.state.clear()  # the trial's own takes its place
    # The old ones have the run's other processes take part in a backward pass.
    for part in classifier.model.modules():
        for name, old in list(part.named_parameters(recurse=False)):
            setattr(part, name, torch.nn.Parameter(old.detach(), old.requires_grad))
    while size > 1:
        size //= 2
        if fits(trainer, classifier, documents[longest[:size].copy()]):
            return size
    return None


def fits(trainer: L.Trainer, classifier: Classifier, batch: Batch) -> bool:
    """Whether a step on the batch goes through; the weights are of no more use afterwards."""
    classifier.zero_grad(set_to_none=True)
    torch.cuda.empty_cache()
    try:
        batch = batch.to(classifier.device)
        with trainer.precision_plugin.forward_context(), torch.set_grad_enabled(trainer.training):
            loss = F.cross_entropy(classifier.model(batch.ids, batch.lengths), batch.labels)
        if trainer.training:
            loss.backward()  # type: ignore[no-untyped-call]
            classifier.configure_optimizers().step()
        if classifier.device.type == "cuda":
            torch.cuda.synchronize()
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        return False
    return True
