"""The systems that training.py compares: posfuse's own run, the Trainer of Hugging Face, and the
plain loop; and the matrix products alone.

`epoch()` of each trains on the chosen documents and evaluates those of the test. Only these two are
timed: no checkpoints, and no texts but in the plain loop, which splits them in every epoch.
"""

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning.pytorch.callbacks import Callback

import plain
from harness import DEVICE, IS_GPU, now, set_as_in_a_run
from posfuse.config import Config
from posfuse.data.batching import Documents
from posfuse.data.datamodule import TextDataModule
from posfuse.training.build import build_data, build_module, build_trainer
from posfuse.training.observers import Diagnostics, History

Chosen = dict[str, np.ndarray]  # numbers of documents of "train" and "test"
Rates = dict[str, float]  # documents per second of "training" and "evaluation"


@dataclass(frozen=True)
class Corpus:
    """The chosen documents as texts, for systems that split them into words themselves."""

    words: dict[str, int]  # the id of each word of the vocabulary, pad and unknown included
    n_classes: int
    texts: dict[str, tuple[list[str], list[int]]]  # of train and test: texts and labels

    def sorted_ids(self, split: str, max_len: int) -> list[dict[str, Any]]:
        """The ids and the label of each document of a split, the shortest document first."""
        texts, labels = self.texts[split]
        rows = [plain.ids_of(text, self.words, max_len) for text in texts]
        found = [{"input_ids": r, "labels": label} for r, label in zip(rows, labels, strict=True)]
        return sorted(found, key=lambda row: len(row["input_ids"]))


class Clock(Callback):
    """Seconds of an epoch's training, including the callbacks at its end, and of its evaluation."""

    def __init__(self, clock: Callable[[], float] = now) -> None:
        self.clock = clock

    def on_train_epoch_start(self, *_: Any) -> None:
        self.start = self.clock()

    def on_validation_start(self, *_: Any) -> None:
        self.trained = self.clock()

    def on_validation_end(self, *_: Any) -> None:
        self.evaluated = self.clock()

    def on_train_epoch_end(self, *_: Any) -> None:
        self.training = self.trained - self.start + self.clock() - self.evaluated
        self.evaluation = self.evaluated - self.trained


def fit(
    cfg: Config, module: Any, data: TextDataModule, clock: Callable[[], float] = now
) -> tuple[Clock, dict[str, Any]]:
    """One epoch with the trainer, history and diagnostics of a run; its times and its metrics."""
    timed = Clock(clock)
    with tempfile.TemporaryDirectory() as folder:
        trainer = build_trainer(cfg, Path(folder), [History(), Diagnostics(data), timed])
        trainer.fit(module, data)
    return timed, trainer.callback_metrics


class Posfuse:
    """A run like that of posfuse train. The lengths of the chosen documents differ, so the run puts
    them into the batches from which they were chosen."""

    def __init__(self, cfg: Config, chosen: Chosen) -> None:
        set_as_in_a_run()
        self.cfg, self.data = cfg, build_data(cfg)
        train, test = (
            Documents(self.data.store.splits[split].take(chosen[split]), cfg.data.max_len)
            for split in ("train", "test")
        )
        self.data.documents = {"train": train, "validation": test, "test": test}
        self.classifier = build_module(cfg, self.data)

    def epoch(self) -> Rates:
        clock, _ = fit(self.cfg, self.classifier, self.data)
        trained, evaluated = (len(self.data.documents[split]) for split in ("train", "test"))
        return {"training": trained / clock.training, "evaluation": evaluated / clock.evaluation}


class Products(Posfuse):
    """The matrix products of the run's linear layers on its padded batches, in float32, and nothing
    else: not those of attention, no other operation, no optimiser. They bound the rate of every
    system that computes these padded batches in float32 on this machine."""

    def __init__(self, cfg: Config, chosen: Chosen) -> None:
        super().__init__(cfg, chosen)
        m: Any = cfg.model
        d, hidden = m.d_model, m.d_ff
        of_block = [(3 * d, d), (d, d), (hidden, d), (d, hidden)]
        self.weights = [torch.randn(shape, device=DEVICE) for shape in of_block] * m.n_layers

    def epoch(self) -> Rates:
        training = self.rate("train", self.data.train_dataloader(), True)
        return {"training": training, "evaluation": self.rate("test", self.data.val_dataloader())}

    def rate(self, split: str, loader: Any, has_backward: bool = False) -> float:
        """Documents per second of the forward pass, or of both passes."""
        documents, seconds = self.data.documents[split], 0.0
        for members in loader.sampler:
            tokens = len(members) * int(documents.lengths[members].max())
            width = max(max(weight.shape) for weight in self.weights)
            x, y, gradient = (torch.ones(tokens * width, device=DEVICE) for _ in range(3))
            start = now()
            for weight in self.weights:
                n_out, n_in = weight.shape
                read = x[: tokens * n_in].view(tokens, n_in)
                written = y[: tokens * n_out].view(tokens, n_out)
                torch.mm(read, weight.T, out=written)
                if has_backward:
                    torch.mm(written, weight, out=gradient[: tokens * n_in].view(tokens, n_in))
                    torch.mm(written.T, read)
            seconds += now() - start
        return len(documents) / seconds


class Plain:
    """The plain loop. It trains on the first `most` documents, because its time for a document does
    not depend on the document's length."""

    def __init__(self, cfg: Config, corpus: Corpus, most: int) -> None:
        o = cfg.optim
        self.cfg, self.corpus, self.most = cfg, corpus, most
        sizes = len(corpus.words), corpus.n_classes, cfg.data.max_len
        self.model = plain.PlainClassifier(*sizes, cfg.model).to(DEVICE)
        kind = {"adamw": torch.optim.AdamW, "adam": torch.optim.Adam}[o.name]
        self.optimizer = kind(self.model.parameters(), lr=o.lr, weight_decay=o.weight_decay)

    def epoch(self) -> Rates:
        words, size = self.corpus.words, self.cfg.data.batch_size
        texts, labels = (column[: self.most] for column in self.corpus.texts["train"])
        held_out = self.corpus.texts["test"]
        clip_norm, start = self.cfg.trainer.clip_norm, now()
        plain.train(self.model, self.optimizer, texts, labels, words, size, clip_norm)
        trained = now()
        plain.evaluate(self.model, *held_out, words, size)
        evaluated = now()
        training, evaluation = trained - start, evaluated - trained
        return {"training": len(texts) / training, "evaluation": len(held_out[0]) / evaluation}


class HuggingFace:
    """BertForSequenceClassification with the run's sizes in the Trainer of transformers, which
    measures its own rates. The texts are ids before an epoch begins.

    The documents come sorted by length: group_by_length sorts pools of a quarter of the epoch, so
    with the few batches of this benchmark it would pad more than in a whole epoch.
    """

    def __init__(self, cfg: Config, corpus: Corpus, is_bfloat16: bool = False) -> None:
        # Imported here, so that the memory of the other systems does not contain it.
        import transformers as hf
        from tokenizers import Tokenizer
        from tokenizers.models import WordLevel

        m, o, clip_norm = cfg.model, cfg.optim, cfg.trainer.clip_norm
        bert = hf.BertConfig(
            vocab_size=len(corpus.words), hidden_size=m.d_model, intermediate_size=m.d_ff,
            num_hidden_layers=m.n_layers, num_attention_heads=m.n_heads, hidden_act=m.activation,
            hidden_dropout_prob=m.dropout, attention_probs_dropout_prob=m.dropout,
            max_position_embeddings=cfg.data.max_len, num_labels=corpus.n_classes,
            pad_token_id=plain.PAD, attn_implementation="sdpa",
        )  # fmt: skip
        arguments = hf.TrainingArguments(
            cfg.output_dir, num_train_epochs=1, optim="adamw_torch_fused", learning_rate=o.lr,
            weight_decay=o.weight_decay, lr_scheduler_type="constant",
            max_grad_norm=clip_norm or 0.0, per_device_train_batch_size=cfg.data.batch_size,
            per_device_eval_batch_size=cfg.data.eval_batch_size, bf16=is_bfloat16,
            use_cpu=not IS_GPU, dataloader_pin_memory=IS_GPU, train_sampling_strategy="sequential",
            save_strategy="no", logging_strategy="no", report_to="none", disable_tqdm=True,
        )  # fmt: skip
        known = Tokenizer(WordLevel(corpus.words, unk_token="<unk>"))
        tokenizer = hf.PreTrainedTokenizerFast(tokenizer_object=known, pad_token="<pad>")
        train, test = (corpus.sorted_ids(split, cfg.data.max_len) for split in ("train", "test"))
        self.trainer = hf.Trainer(
            hf.BertForSequenceClassification(bert), arguments,
            hf.DataCollatorWithPadding(tokenizer), train, test,
            compute_metrics=lambda of: {"right": (of[0].argmax(-1) == of[1]).mean()},
        )  # fmt: skip

    def epoch(self) -> Rates:
        trained, evaluated = self.trainer.train().metrics, self.trainer.evaluate()
        return {
            "training": trained["train_samples_per_second"],
            "evaluation": evaluated["eval_samples_per_second"],
        }
