"""Kinds of task. A task determines the targets, the network, the loss and the metric of a run.

conf/task chooses one. The training modules are imported only in the methods that build them,
because Lightning takes seconds to import and the check of a config does not need it.
"""

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from posfuse.config import Config, seed_of
from posfuse.data import targets
from posfuse.data.batching import Documents
from posfuse.data.corpora import is_task
from posfuse.data.token_store import TokenStore
from posfuse.errors import InputError
from posfuse.model.language_model import LanguageModel
from posfuse.model.network import Backbone, FusionTransformer, PositionClassifier
from posfuse.runs.combinations import require

if TYPE_CHECKING:
    from posfuse.training.module import TrainingModule

LANGUAGE_MODEL = {  # the only values that fit it, and the reasons
    "task.class_weights": ("none", "only a classifier has weights of classes"),
    "host.name": ("own", "a pretrained model of transformers reads both ways"),
    "pretrain.name": ("none", "a language model needs no pretraining"),
    "data.word_order": ("original", "a language model predicts the next word"),
}


class Task(ABC):
    """The base of all tasks. A subclass adds its network and its module."""

    metric = "accuracy"  # the metric of a run
    lower_is_better = False  # of the metric
    further: tuple[str, ...] = ()  # metrics of a run by which runs can be compared too
    needs_labels = True  # True: each document must have a class
    causal = False  # True: a token sees only itself and earlier tokens

    def __init__(self, cfg: Config) -> None:
        self.cfg = cfg

    def check(self) -> None:
        """Raise InputError for a config that does not fit the task, before any data is loaded."""
        why = "only a language model reads it; set task=language_model, or take other data"
        needs = {"data.targets": ("all", why), "data.vocabulary.ending": ("", why)}
        require(self.cfg, f"task={self.cfg.task.name}", needs)

    def documents(self, store: TokenStore) -> dict[str, Documents]:
        """The documents of train, validation, test, and of each further test split.

        A further split has a name such as test@512 or sliding@512, with its length.
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
        return tuple(dict.fromkeys((self.metric, *self.further)))

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

    further = ("macro_f1",)

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

    further: tuple[str, ...] = ("accuracy",)
    needs_labels = False
    causal = True

    def __init__(self, cfg: Config) -> None:
        super().__init__(cfg)
        if cfg.data.vocabulary.unit == "bytes":
            self.metric, self.lower_is_better = "bits_per_byte", True

    def check(self) -> None:
        require(self.cfg, "task=language_model", LANGUAGE_MODEL)
        vocabulary = self.cfg.data.vocabulary
        if vocabulary.unit == "words" and vocabulary.file is None:
            why = "only bytes, characters and a tokenizer.json have an ending"
            require(self.cfg, "data.vocabulary.unit=words", {"data.vocabulary.ending": ("", why)})
        self.check_targets()

    def check_targets(self) -> None:
        """Raise InputError for targets that the data lacks."""
        why = f"{self.cfg.data.name} is a text without answers"
        require(self.cfg, "task=language_model", {"data.targets": ("all", why)})

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

    metric = "exact_match"
    further = ("accuracy", "greedy_accuracy")

    def check_targets(self) -> None:
        data = self.cfg.data
        if data.targets == "all":
            raise InputError(
                f"data.targets: {data.name} has classes and no answer to predict; use data=copy, "
                "reverse or associative_recall, or task=classification"
            )

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
