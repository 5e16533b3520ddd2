"""Token ids on disk: written once per corpus, then memory-mapped by every run of a sweep.

A store is a folder. Its name is a fingerprint of everything that its content depends on. For each
split it contains <split>.ids.npy (the tokens of all documents in a row), and files of the same form
for offsets, labels, groups and rows. It also contains the vocabulary, and meta.json with the
checksum of each file. A store is built in a temporary folder and renamed, so two processes that
start together both get a complete store. A store whose checksums do not match is built again.
"""

import errno
import json
import logging
import os
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from tokenizers import Tokenizer

from posfuse.config import DataConfig, VocabularyConfig
from posfuse.data.corpora import SPLITS, Corpus, Poll, files_digest, is_task, load
from posfuse.data.locks import lock
from posfuse.data.pretrained_folder import TOKENIZER, pretrained_files, read_tokenizer
from posfuse.data.splits import Split, splits
from posfuse.data.vocabulary import (
    SPECIAL,
    Encoder,
    Tokens,
    own_tokens,
    portions,
    tokenizer_file_digest,
    tokens_of,
)
from posfuse.errors import InputError, lacks_memory
from posfuse.seals import checksum, digest_of

VOCABULARY = "vocabulary.json"
COLUMNS = ["text", "label"]  # of most corpora
FORMAT = 5  # part of every key; increase it if the written bytes change
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TokenizedSplit:
    """Document i has the tokens ids[offsets[i]:offsets[i + 1]] and the label labels[i].

    Documents that share a part, such as the first article of a story, have the same group. In other
    corpora each document is its own group.
    """

    ids: np.ndarray  # (T,), T tokens in the split
    offsets: np.ndarray  # (documents + 1,)
    labels: np.ndarray  # (documents,)
    groups: np.ndarray  # (documents,)
    rows: np.ndarray  # (documents,), the row of each document in its file, from 0

    @property
    def lengths(self) -> np.ndarray:
        """Tokens of each document, before it is cut to max_len, (documents,)."""
        return np.diff(self.offsets)

    def take(self, chosen: np.ndarray) -> "TokenizedSplit":
        """The documents at these places, in memory."""
        bounds = zip(self.offsets[chosen], self.offsets[chosen + 1], strict=True)
        ids = np.concatenate([self.ids[start:end] for start, end in bounds])
        offsets = np.cumsum([0, *self.lengths[chosen]])
        others = (self.labels[chosen], self.groups[chosen], self.rows[chosen])
        return TokenizedSplit(ids, offsets, *others)


@dataclass(frozen=True)
class TokenStore:
    """The token ids of a corpus by split, with its vocabulary and facts about its texts."""

    splits: dict[str, TokenizedSplit]
    vocabulary_size: int
    label_names: list[str]
    unknown_share: dict[str, float]  # of each split's tokens
    folder: Path
    ending: int = 0  # tokens at the end of each document that a cut does not remove
    shift: int = 0  # an id minus the vocabulary's id
    repeated: int = 0  # test documents whose text also occurs in train

    def words(self, ids: Iterable[int]) -> list[str]:
        """The words, or bytes, with these ids."""
        return [
            SPECIAL[i] if i < self.shift else str(self._vocabulary.id_to_token(int(i) - self.shift))
            for i in ids
        ]

    def text(self, ids: Iterable[int]) -> str:
        """The text with these ids of the user's tokenizer."""
        own = [int(i) - self.shift for i in ids if i >= self.shift]
        return str(self._vocabulary.decode(own))

    def id_of(self, word: str) -> int:
        """The id of a word, or byte, of the vocabulary. Raises ValueError for an unknown one."""
        number: int | None = self._vocabulary.token_to_id(word)
        if number is None:
            raise ValueError(f"{word!r} is not in the vocabulary")
        return number + self.shift

    def encoder(self, own: VocabularyConfig) -> Encoder:
        """The encoder of the texts, by the config."""
        return tokens_of(own, self._vocabulary).encode

    @cached_property
    def _vocabulary(self) -> Tokenizer:
        return Tokenizer.from_file(str(self.folder / VOCABULARY))


def open_store(
    cfg: DataConfig,
    cache_dir: str | Path,
    validation_seed: int | None = None,
    poll: Poll = lambda: None,
    pretrained: str | None = None,
    labelled: bool = True,
) -> TokenStore:
    """Open the token store of a corpus. A missing or damaged store is built first.

    `validation_seed` draws the validation split of a corpus that has none (None: split_seed).
    `poll` is called while texts are read and between batches of them; an exception that it raises
    stops the building.
    `pretrained` is the folder of a model whose tokenizer is used (None: a vocabulary of the texts).
    Without `labelled`, the documents need no labels, and an existing store may have none. Raises
    InputError for documents that cannot be used and for a folder that cannot be written.
    """
    corpus = load(cfg)
    key = store_key(cfg, corpus, validation_seed, pretrained)
    folder = Path(cache_dir) / f"{cfg.name}-{key}"
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        # A second process waits and then reads the store of the first one.
        with lock(folder.with_name(f"{folder.name}.lock"), poll):
            store = _read(folder, labelled)
            if store is None:
                parts, names = splits(corpus, cfg, validation_seed, labelled, poll)
                counted = SPLITS if cfg.vocabulary.source == "all" else ("train",)
                texts = _texts(parts, counted, poll)
                tokens = read_tokenizer(pretrained) if pretrained else own_tokens(texts, cfg)
                repeated = 0 if is_task(cfg) else _repeated(parts, poll)
                _write(folder, parts, names, tokens, repeated, poll)
                store = _read(folder, labelled)
    except OSError as error:
        if lacks_memory(error):
            raise
        # A store of another user or on a read-only disk. It was renamed as a whole, so no lock is
        # needed to read it.
        is_refused = error.errno in (errno.EACCES, errno.EPERM, errno.EROFS)
        store = _read(folder, labelled) if is_refused else None
        if store is None:
            raise InputError(
                f"{folder}: cannot write token ids ({error}); free space there or set "
                "cache_dir=FOLDER"
            ) from error
    assert store is not None  # it has just been written
    return store


def store_key(
    cfg: DataConfig,
    corpus: Corpus,
    validation_seed: int | None = None,
    pretrained: str | None = None,
) -> str:
    """16 hex digits: a hash of everything that can change a byte of the store."""
    parts = {
        "format": FORMAT,
        "corpus": corpus.fingerprint,
        "drop_empty": cfg.drop_empty,
        "split_seed": cfg.split_seed,
        "validation_seed": cfg.split_seed if validation_seed is None else validation_seed,
        "validation_fraction": cfg.validation_fraction,
        "validation_stratified": cfg.validation_stratified,
        "limit": cfg.limit,
        "vocabulary": _vocabulary_key(cfg.vocabulary),
        **({"columns": columns} if (columns := [cfg.text, cfg.labels]) != COLUMNS else {}),
    }
    if pretrained is not None:
        parts["tokenizer"] = files_digest({TOKENIZER: pretrained_files(pretrained)[TOKENIZER]})
    return digest_of(parts)[:16]


def _vocabulary_key(own: VocabularyConfig) -> dict[str, Any]:
    key = asdict(own)
    file = key.pop("file")
    return key if file is None else {**key, "file": tokenizer_file_digest(file)}


def _write(
    folder: Path, parts: dict[str, Split], label_names: list[str], tokens: Tokens, repeated: int,
    poll: Poll,
) -> None:  # fmt: skip
    """Write a store in a temporary folder and rename it to `folder`. The caller holds the lock."""
    work = folder.with_name(f"{folder.name}.part")
    shutil.rmtree(work, ignore_errors=True)  # left by a process that was killed
    work.mkdir()
    try:
        shares = {split: _write_split(work, split, parts[split], tokens, poll) for split in parts}
        meta: dict[str, Any] = {  # fields of TokenStore
            "vocabulary_size": tokens.size, "label_names": label_names, "unknown_share": shares,
            "ending": tokens.ending, "shift": tokens.shift, "repeated": repeated,
        }  # fmt: skip
        # Tokenizer.save does not report a full disk as an OSError.
        vocabulary = tokens.vocabulary.to_str(pretty=True)
        (work / VOCABULARY).write_text(vocabulary, encoding="utf-8")
        meta["checksums"] = {file.name: checksum(file) for file in sorted(work.iterdir())}
        (work / "meta.json").write_text(json.dumps(meta, indent=1), encoding="utf-8")
        shutil.rmtree(folder, ignore_errors=True)  # a damaged store, if there is one
        os.rename(work, folder)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _texts(parts: dict[str, Split], names: Iterable[str], poll: Poll) -> Iterator[str]:
    texts = chain.from_iterable(parts[split].texts() for split in names)
    return chain.from_iterable(portions(texts, poll))


def _repeated(parts: dict[str, Split], poll: Poll) -> int:
    """The number of test documents whose text occurs in train. For a .txt file, whose lines often
    repeat, it is 0 unless every test line occurs in train."""
    known = set(map(hash, _texts(parts, ["train"], poll)))
    occurs = [hash(text) in known for text in parts["test"].texts()]
    return sum(occurs) if all(occurs) or not parts["train"].source.is_one_text else 0


def _write_split(work: Path, split: str, part: Split, tokens: Tokens, poll: Poll) -> float:
    """Write the ids of a split, batch by batch, then its offsets, labels, groups and rows. Returns
    the fraction of unknown tokens."""
    lengths: list[np.ndarray] = []
    n_unknown = 0
    with (work / f"{split}.ids.npy").open("wb") as file:
        for texts in portions(part.texts(), poll):
            ids, offsets = tokens.encode(texts)
            if not lengths:
                _write_header(file, ids.dtype, 0)  # overwritten below, when T is known
            file.write(ids.data)
            lengths.append(np.diff(offsets))
            if tokens.unknown is not None:
                n_unknown += int((ids == tokens.unknown).sum())
        offsets = np.cumsum(np.concatenate([[0], *lengths]), dtype=np.int64)
        file.seek(0)
        _write_header(file, ids.dtype, int(offsets[-1]))
    np.save(work / f"{split}.offsets.npy", offsets)
    for name in ("labels", "groups", "rows"):
        np.save(work / f"{split}.{name}.npy", getattr(part, name))
    return float(n_unknown / offsets[-1])


def _write_header(file: BinaryIO, kind: np.dtype, length: int) -> None:
    """Write the header of an .npy file for an array (length,). Its size does not depend on the
    length."""
    header = {"descr": np.lib.format.dtype_to_descr(kind), "fortran_order": False}
    np.lib.format.write_array_header_1_0(file, {**header, "shape": (length,)})


def _read(folder: Path, labelled: bool) -> TokenStore | None:
    """The store in `folder`; None if there is none, if it is damaged, and with `labelled` if its
    documents have no labels."""
    if not folder.is_dir():
        return None
    try:
        meta = json.loads((folder / "meta.json").read_text(encoding="utf-8"))
        for name, sealed in meta.pop("checksums").items():
            if checksum(folder / name) != sealed:
                raise ValueError(f"{name} does not match its checksum")
        tokenized = {
            split: TokenizedSplit(
                # Plain arrays still read from the files. A slice of a np.memmap takes ten times as
                # long, and a batch takes one slice per document.
                *(np.asarray(np.load(folder / f"{split}.{part}.npy", mmap_mode="r"))
                  for part in ("ids", "offsets", "labels", "groups", "rows"))
            )
            for split in meta["unknown_share"]
        }  # fmt: skip
        store = TokenStore(splits=tokenized, folder=folder, **meta)
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        log.warning("%s: damaged (%s); building it again", folder, error)
        return None
    return None if labelled and store.label_names == [""] else store
