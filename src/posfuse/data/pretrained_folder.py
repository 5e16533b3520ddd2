"""The folder of a pretrained model, as `save_pretrained` of transformers writes it: its files and
its tokenizer."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from posfuse.data.vocabulary import Tokens, in_a_row, read_tokenizer_file, unknown_of
from posfuse.errors import InputError
from posfuse.untrusted import read_json

CONFIG, TOKENIZER = "config.json", "tokenizer.json"
MOST_LAYERS = 4096  # of a model; with many more, building takes hours
LAYERS = re.compile("layer|block|depth|group|stage", re.IGNORECASE)  # keys that count them
WEIGHTS = ("model*.safetensors*", "pytorch_model*.bin*")  # and their index; the first match counts


def pretrained_files(path: str) -> dict[str, Path]:
    """The configuration, the tokenizer and the weights by name.

    Raises InputError if the folder or one of them is missing. Nothing is downloaded.
    """
    root = Path(path)
    weights = next(filter(None, (sorted(root.glob(pattern)) for pattern in WEIGHTS)), [])
    files = (root / CONFIG, root / TOKENIZER, *(weights or [root / "model.safetensors"]))
    for file in files:
        if not file.is_file():
            raise InputError(
                f"host.path: no {file.name} in {root}; nothing is downloaded, so write the folder "
                "with save_pretrained(FOLDER) of the model and of its tokenizer"
            )
    return {file.name: file for file in files}


def check_architecture(path: str) -> None:
    """Raise ValueError or OSError if config.json cannot belong to a pretrained model."""
    todo = [("", read_json(Path(path) / CONFIG))]
    for key, value in todo:
        if isinstance(value, dict):
            todo += value.items()
        elif isinstance(value, list):
            todo += [(key, each) for each in value]
        elif isinstance(value, int) and value > MOST_LAYERS and LAYERS.search(key):
            raise ValueError(f"{CONFIG}: {key} is {value}, above {MOST_LAYERS}")


def read_tokenizer(path: str) -> Tokens:
    """The tokenizer of a pretrained model.

    Raises InputError as `pretrained_files`, and if its file cannot be read.
    """
    file = pretrained_files(path)[TOKENIZER]
    tokenizer = read_tokenizer_file(file, "write it again with save_pretrained")
    ids: dict[str, int] = tokenizer.get_vocab()
    unknown = unknown_of(tokenizer)
    special = tokenizer.encode("").ids
    size = max(ids.values()) + 1

    def encode(texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """The ids of a document, with the special tokens. A document without tokens is one unknown
        token."""
        documents = [document.ids for document in tokenizer.encode_batch_fast(texts)]
        return in_a_row([document or [unknown or 0] for document in documents], size)

    ending = _ending(file, tokenizer, special, ids)
    return Tokens(tokenizer, encode, size, unknown, len(special), ending)


def _ending(file: Path, tokenizer: Tokenizer, special: list[int], words: Iterable[str]) -> int:
    """The number of special tokens after a document's text."""
    for word in ("a", *words):
        plain = tokenizer.encode(word, add_special_tokens=False).ids
        whole = tokenizer.encode(word).ids
        for start in range(len(special) + 1) if plain else ():
            if special[:start] + plain + special[start:] == whole:
                return len(special) - start
    raise InputError(
        f"{file}: encodes no word, or puts special tokens inside a text; use the model's own "
        "tokenizer"
    )
