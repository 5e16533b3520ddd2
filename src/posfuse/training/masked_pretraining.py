"""pretrain=masked: before the task, the encoder learns to predict masked tokens of the training
texts.

The result is in cache_dir/pretrained/<fingerprint>. Runs that differ only after pretraining share
it.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch.nn.functional as F
from torch import Tensor

from posfuse.config import Config, OptimConfig, TaskConfig, TrainerConfig
from posfuse.data.batching import Batch, Documents
from posfuse.data.token_store import TokenStore
from posfuse.data.vocabulary import UNKNOWN
from posfuse.errors import InputError
from posfuse.model.masked import MaskedModel, mask
from posfuse.model.network import Backbone, FusionTransformer, seed_from
from posfuse.runs import records
from posfuse.training.checkpoints import read_checkpoint
from posfuse.training.module import TrainingModule
from posfuse.training.task import Task

# The fields of TrainerConfig that pretraining shares with the run.
SHARED = (
    "clip_norm", "accelerator", "precision", "threads", "compile", "limit_batches",
    "checkpoint_minutes", "progress",
)  # fmt: skip
HEAD = "model.head."  # beginning of the names of parameters that a run does not load


class MaskedTokens(TrainingModule):
    """Trains a MaskedModel with the cross-entropy of the masked tokens, in nats.

    The masks of a step depend only on (seed, step), so all operators and encodings with one seed,
    and a resumed run, have the same masks. The masks of validation never change.
    """

    model: MaskedModel
    lr_key, batch_key = "pretrain.lr", "pretrain.batch_size"

    def __init__(self, model: MaskedModel, optim: OptimConfig, seed: int, share: float) -> None:
        super().__init__(model, optim, seed)
        self.share, self.vocabulary_size = share, model.head.out_features

    def hide(self, batch: Batch, *place: object) -> tuple[Tensor, Tensor]:
        """The input of the model and the tokens to predict, as in `mask`. `place` seeds the
        draws."""
        seed = seed_from(self.seed, "masks", *place)
        return mask(batch.ids, batch.lengths, self.share, self.vocabulary_size, UNKNOWN, seed)

    def training_step(self, batch: Batch, batch_number: int) -> Tensor:
        positions = self.positions_of_step(batch)
        read, masked = self.hide(batch, "training", self.global_step)
        logits = self.model(read, batch.lengths, masked, positions)
        n = int(masked.sum())
        losses = F.cross_entropy(logits, batch.ids[masked], reduction="sum")
        return self.step_loss(losses / max(n, 1), batch, n)

    def validation_step(self, batch: Batch, batch_number: int) -> None:
        read, masked = self.hide(batch, "validation", batch_number)
        logits, wanted = self.model(read, batch.lengths, masked).float(), batch.ids[masked]
        if n := len(wanted):
            self.log_mean("val/loss", F.cross_entropy(logits, wanted), n)
            self.log_mean("val/accuracy", (logits.argmax(-1) == wanted).double().mean(), n)


class MaskedWords(Task):
    """The masked tokens of the training texts."""

    needs_labels = False

    def documents(self, store: TokenStore) -> dict[str, Documents]:
        """Raises InputError if the validation documents have no word to predict."""
        documents = super().documents(store)
        if not documents["validation"].counts(store.vocabulary_size)[UNKNOWN + 1 :].any():
            raise InputError(
                "pretrain: the validation documents have no known word to predict; give others, or "
                "remove pretrain=masked"
            )
        return documents

    def network(self, backbone: Backbone, vocabulary_size: int, n_classes: int) -> MaskedModel:
        return MaskedModel(backbone, vocabulary_size, self.head_dropout)

    def module(self, network: MaskedModel) -> MaskedTokens:
        return MaskedTokens(network, self.cfg.optim, self.seed, self.cfg.pretrain.share)


def first_phase(cfg: Config) -> Config:
    """The config of a run's pretraining, without any key of the run's task."""
    given: Any = {name: getattr(cfg.trainer, name) for name in SHARED}
    return replace(
        cfg,
        task=TaskConfig(),
        data=replace(cfg.data, batch_size=cfg.pretrain.batch_size, test_lengths=[]),
        model=replace(cfg.model, head_dropout=None),
        optim=OptimConfig(lr=cfg.pretrain.lr),
        trainer=TrainerConfig(max_epochs=cfg.pretrain.max_epochs, monitor="loss", **given),
    )


def facts(folder: Path) -> records.Record:
    """The entry `pretrain` of a run's record: loss and accuracy of the masked validation tokens,
    epochs, and seconds."""
    record: records.Record = records.read_json(folder / records.RESULT)
    return {k: record[k] for k in ("fingerprint", "loss", "accuracy", "epochs", "seconds")}


def load(model: FusionTransformer, folder: Path) -> None:
    """Load the pretrained values of all parameters of a model except the head's."""
    saved = read_checkpoint(folder / records.BEST)["state_dict"].items()
    weights = {name.removeprefix("model."): w for name, w in saved if not name.startswith(HEAD)}
    model.load_state_dict(model.state_dict() | weights)
