"""Kinds of task. A task determines the targets, the network, the loss and the metric of a run.

conf/task chooses one. The training modules are imported only in the methods that build them,
because Lightning takes seconds to import and the check of a config does not need it.
"""

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from posfuse.config import Config, is_pretrained, seed_of
from posfuse.data import targets
from posfuse.data.batching import Documents
from posfuse.data.corpora import is_task
from posfuse.data.token_store import TokenStore
from posfuse.errors import InputError
from posfuse.model.language_model import LanguageModel
from posfuse.model.network import Backbone, FusionTransformer, PositionClassifier

if TYPE_CHECKING:
    from posfuse.training.module import TrainingModule


class Task(ABC):
    """The base of all tasks. A subclass adds its network and its module."""

    metric = "accuracy"  # the metric of a run
    lower_is_better = False  # of the metric
    needs_labels = True  # True: each document must have a class
    causal = False  # True: a token sees only itself and earlier tokens

    def __init__(self, cfg: Config) -> None:
        self.cfg = cfg

    def check(self) -> None:
        """Raise InputError for a config that does not fit the task, before any data is loaded."""
        data = self.cfg.data
        if data.targets != "all" or data.vocabulary.ending:
            key = "data.targets" if data.targets != "all" else "data.vocabulary.ending"
            raise InputError(
                f"{key}: is for language models; set task=language_model, or take other data"
            )

    def documents(self, store: TokenStore) -> dict[str, Documents]:
        """The documents of train, validation, test, and of each further test split.

        The name of a further split ends in @ and a length: test@512, sliding@512.
        """
        return targets.whole_documents(store, self.cfg.data)

    def label_names(self, store: TokenStore) -> list[str]:
        """The names of the classes for the record."""
        return store.label_names

    @abstractmethod
    def network(
        self, backbone: Backbone, vocabulary_size: int, n_classes: int
    ) -> FusionTransformer:
        """The network for a corpus with this vocabulary and these labels, without its initial
        values."""

    @abstractmethod
    def module(self, network: Any) -> "TrainingModule":
        """The module that trains this network."""

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics of the test by which runs can be compared."""
        return (self.metric,)

    @property
    def monitor(self) -> tuple[str, str]:
        """The logged metric of trainer.monitor, and "max" or "min" for its best value."""
        chosen = self.cfg.trainer.monitor
        name = self.metric if chosen == "metric" else chosen
        is_lower = name == "loss" or (name == self.metric and self.lower_is_better)
        return f"val/{name}", "min" if is_lower else "max"

    @property
    def head_dropout(self) -> float:
        """The dropout before the last layer."""
        model: Any = self.cfg.model
        return model.dropout if model.head_dropout is None else model.head_dropout

    @property
    def seed(self) -> int:
        """The seed of a module: of dropout masks and positions."""
        return seed_of(self.cfg, "dropout")


class Classification(Task):
    """A document's class, from the mean of the encoder's output."""

    def network(
        self, backbone: Backbone, vocabulary_size: int, n_classes: int
    ) -> PositionClassifier:
        if n_classes < 2:
            raise InputError(
                f"data: {self.cfg.data.name} has one class or no labels; give at least two "
                "classes, or set task=language_model"
            )
        return PositionClassifier(backbone, vocabulary_size, n_classes, self.head_dropout)

    def module(self, network: PositionClassifier) -> "TrainingModule":
        from posfuse.training.classifier import Classifier

        balanced = self.cfg.task.class_weights == "balanced"
        return Classifier(network, self.cfg.optim, network.head.out_features, self.seed, balanced)


class NextTokenTask(Task):
    """The next token of a running text."""

    needs_labels = False
    causal = True

    def __init__(self, cfg: Config) -> None:
        super().__init__(cfg)
        if cfg.data.vocabulary.unit == "bytes":
            self.metric, self.lower_is_better = "bits_per_byte", True

    def check(self) -> None:
        cfg, data, ending = self.cfg, self.cfg.data, self.cfg.data.vocabulary.ending
        for key, value, other in (
            ("task.class_weights", cfg.task.class_weights, "balanced"),
            ("trainer.monitor", cfg.trainer.monitor, "macro_f1"),
        ):
            if value == other:
                raise InputError(f"{key}: {value} is for classifiers; remove it")
        if is_pretrained(cfg):
            raise InputError(
                "task=language_model: needs a causal model, and host=transformers reads both ways; "
                "use task=classification"
            )
        if cfg.pretrain.name != "none":
            raise InputError(
                "pretrain: is for classifiers, and a language model needs none; remove "
                f"pretrain={cfg.pretrain.name}"
            )
        if data.word_order != "original":
            raise InputError(
                "data.word_order: shuffled is for classifiers, because a language model predicts "
                "the next word; remove it, or set task=classification"
            )
        if is_task(data) and data.targets == "all":
            raise InputError(
                f"data.targets: {data.name} has classes and no answer to predict; use data=copy, "
                "reverse or associative_recall, or task=classification"
            )
        if is_task(data) and ending:
            raise InputError(f"data.vocabulary.ending: is for texts; remove it for {data.name}")
        if not is_task(data) and data.targets != "all":
            raise InputError(
                f"data.targets: must be all for texts such as {data.name} (got {data.targets})"
            )
        if ending and data.vocabulary.unit == "words" and data.vocabulary.file is None:
            raise InputError(
                "data.vocabulary.ending: is for bytes and characters; remove it, or set "
                "data.vocabulary.unit=bytes"
            )

    @property
    def metrics(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(("accuracy", self.metric)))

    def documents(self, store: TokenStore) -> dict[str, Documents]:
        return targets.windows(store, self.cfg.data)

    def label_names(self, store: TokenStore) -> list[str]:
        return []

    def network(self, backbone: Backbone, vocabulary_size: int, n_classes: int) -> LanguageModel:
        is_tied = self.cfg.task.output == "tied"
        return LanguageModel(backbone, vocabulary_size, self.head_dropout, is_tied)

    def module(self, network: LanguageModel) -> "TrainingModule":
        from posfuse.training.next_token import NextToken

        return NextToken(network, self.cfg.optim, self.seed, self.metric == "bits_per_byte")


class AnswerTask(NextTokenTask):
    """The tokens of an answer, after a question and a bar."""

    def __init__(self, cfg: Config) -> None:
        super().__init__(cfg)
        self.metric, self.lower_is_better = "exact_match", False

    @property
    def metrics(self) -> tuple[str, ...]:
        return (*super().metrics, "greedy_accuracy")

    def documents(self, store: TokenStore) -> dict[str, Documents]:
        return targets.answers(store, self.cfg.data)

    def label_names(self, store: TokenStore) -> list[str]:
        return store.label_names

    def module(self, network: LanguageModel) -> "TrainingModule":
        from posfuse.training.next_token import NextAnswer

        return NextAnswer(network, self.cfg.optim, self.seed)


def language_model(cfg: Config) -> NextTokenTask:
    """The task of a language model: answers of a generated task, otherwise texts."""
    return AnswerTask(cfg) if is_task(cfg.data) else NextTokenTask(cfg)
