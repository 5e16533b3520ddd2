"""A trained classifier as one safetensors file for inference, with its folded weights. The header
has the run's config, the names of the classes and the vocabulary.

The file contains only numbers and text. Loading it imports and calls the classes that its config
names (docs/security.md).
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pandas as pd
import torch
import torch.nn.functional as F
from omegaconf import OmegaConf
from safetensors import safe_open
from safetensors.torch import save, save_file
from tokenizers import Tokenizer
from torch import Tensor

from posfuse.config import Config, is_pretrained, longest
from posfuse.data.corpora import is_task
from posfuse.data.own_code import is_own
from posfuse.data.token_store import VOCABULARY
from posfuse.data.vocabulary import Tokens, tokens_of
from posfuse.errors import InputError, input_errors
from posfuse.model.network import FoldedClassifier
from posfuse.runs import configs, records
from posfuse.runs.checks import checked
from posfuse.training.build import build_network
from posfuse.training.classifier import Classifier
from posfuse.training.trained import load_run
from posfuse.untrusted import check_yaml

CHECKSUM = "sha256"  # the header's key


@dataclass(frozen=True)
class Exported:
    """A classifier of texts: its vocabulary, its model and the names of its classes."""

    cfg: Config
    label_names: list[str]
    vocabulary: Tokenizer
    model: FoldedClassifier

    @torch.no_grad()
    def probabilities(self, texts: Iterable[str]) -> Tensor:
        """B texts -> (B, C): the probabilities of the classes for each text; no texts -> (0, C).

        `texts` is a list, a column of a frame or another ordered iterable of strings. Raises
        InputError for anything else.
        """
        checked_texts = _list_of_texts(texts)
        if not checked_texts:
            return torch.empty(0, len(self.label_names))
        size = self.cfg.data.eval_batch_size
        tokens = tokens_of(self.cfg.data.vocabulary, self.vocabulary)
        starts = range(0, len(checked_texts), size)
        return torch.cat([self._of_batch(tokens, checked_texts[i : i + size]) for i in starts])

    def _of_batch(self, tokens: Tokens, texts: list[str]) -> Tensor:
        flat, offsets = tokens.encode(texts)
        cut = [
            torch.from_numpy(flat[start:end][: self.cfg.data.max_len].astype("int64"))
            for start, end in pairwise(offsets)
        ]
        lengths = torch.tensor([len(ids) for ids in cut])
        width = max(1, int(lengths.max()))
        ids = torch.stack([F.pad(ids, (0, width - len(ids))) for ids in cut])
        device = self.model.head.weight.device
        logits: Tensor = self.model(ids.to(device), lengths.to(device))
        return logits.softmax(-1).cpu()


def export(run: str | Path, path: str | Path) -> None:
    """Write a finished run's folded model to `path`. Creates the folder if it is missing.

    Raises InputError as `load_run`, and if `path` cannot be written.
    """
    cfg, data, classifier = load_run(run)
    if not isinstance(classifier, Classifier):
        raise InputError(f"{run}: its task has no classes; give the run of a classifier")
    if is_pretrained(cfg):
        raise InputError(
            f"{run}: has host=transformers, and such a model is not exported as one file; use "
            "posfuse.training.trained.load_run"
        )
    if cfg.data.word_order == "shuffled":
        raise InputError(
            f"{run}: has data.word_order=shuffled, but an exported model reads a text in its "
            "original order; use posfuse.training.trained.load_run"
        )
    try:
        folded = classifier.model.fold()
    except ValueError as error:
        raise InputError(f"{run}: {error}; use posfuse.training.trained.load_run") from error
    reach, target = longest(cfg.data), (cfg.data.corpus or {}).get("_target_", "posfuse.")
    # A model needs no corpus, and its reader may not have the module of this one. A string of a
    # task is read as a whole, a text up to max_len.
    without: dict[str, Any] = {"corpus": None, "path": cfg.data.name}
    if is_task(cfg.data):
        cfg = replace(cfg, data=replace(cfg.data, **without, max_len=reach, test_lengths=[]))
    elif is_own(target):
        lengths = [reach] if reach > cfg.data.max_len else []
        cfg = replace(cfg, data=replace(cfg.data, **without, test_lengths=lengths))
    header = {
        "config": OmegaConf.to_yaml(OmegaConf.create(asdict(cfg))),
        "label_names": json.dumps(data.store.label_names),
        "vocabulary": (data.store.folder / VOCABULARY).read_text(encoding="utf-8"),
    }
    weights = {k: v.contiguous() for k, v in folded.state_dict().items()}
    with input_errors(f"path: {str(path)!r} cannot be written", "give another path"):
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        with records.replacing(Path(path)) as part:
            save_file(weights, part, {**header, CHECKSUM: _checksum(weights, header)})


def load_export(path: str | Path) -> Exported:
    """Load a file that `export` wrote, on the CPU. Raises InputError for any other file."""
    with input_errors(f"{path}: not a model that posfuse exported", "export its run again"):
        with safe_open(path, "pt") as file:
            header = file.metadata() or {}
            weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        if header.pop(CHECKSUM, None) != _checksum(weights, header):
            raise ValueError("its checksum is missing or wrong")
        check_yaml(header["config"])
        cfg = checked(OmegaConf.structured(configs.config_of(header["config"])))
        names = json.loads(header["label_names"])
        tokenizer = Tokenizer.from_str(header["vocabulary"])
        size = tokens_of(cfg.data.vocabulary, tokenizer).size
        folded = build_network(cfg, size, len(names)).fold()
        folded.load_state_dict(weights)
    return Exported(cfg, names, tokenizer, folded)


def _checksum(weights: dict[str, Tensor], header: dict[str, str]) -> str:
    """sha256 over the weights, their names, types and shapes, and the rest of the header."""
    text = json.dumps(header, sort_keys=True)
    return hashlib.sha256(save(weights) + text.encode()).hexdigest()


def _list_of_texts(texts: Iterable[str]) -> list[str]:
    """The texts as a list. Raises InputError unless each of them is a valid string."""
    # A frame or a mapping would give the names of its columns or keys, and a set has no order.
    unfit = (str, bytes, bytearray, pd.DataFrame, Mapping, set, frozenset)
    if isinstance(texts, unfit) or not isinstance(texts, Iterable):
        raise InputError(f"texts: must be a list of strings (got {type(texts).__name__})")
    texts = list(texts)
    for i, text in enumerate(texts):
        with input_errors(f"texts[{i}]: not valid text", "give a string in Unicode"):
            str.encode(text)
    return texts
