"""Turns words, characters, bytes or the tokens of a user's tokenizer into ids. `<pad>` is 0 and
`<unk>` is 1 in all four.

Words are lower-cased and split at white space. Characters are Unicode's, white space included, and
bytes are those of the text's UTF-8, both unchanged. Token t of a user's tokenizer has the id t + 2.
The tokenizer of a pretrained model has other ids (pretrained_folder.py).
"""

import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.normalizers import Lowercase
from tokenizers.pre_tokenizers import WhitespaceSplit

from posfuse.config import DataConfig, VocabularyConfig
from posfuse.data.corpora import Poll, files_digest
from posfuse.errors import InputError, input_errors
from posfuse.untrusted import MEBIBYTE, read_bytes

Encoder = Callable[[Sequence[str]], tuple[np.ndarray, np.ndarray]]  # texts -> ids, offsets
PAD, UNKNOWN = 0, 1
SPECIAL = ["<pad>", "<unk>"]
LARGEST_TOKENIZER = 256 * MEBIBYTE
LOWER = Lowercase()
WORD = re.compile(r"[\S\x1c-\x1f]+")  # these four match \s in Python alone
PORTION = 1 << 20  # characters that are encoded at once, to bound the memory


@dataclass(frozen=True)
class Tokens:
    """The tokens of a corpus: the encoder of its texts, and facts about the ids."""

    vocabulary: Tokenizer
    encode: Encoder
    size: int  # the largest id + 1
    unknown: int | None = UNKNOWN  # the id of unknown tokens; None if every text is known
    special: int = 0  # tokens that a pretrained model adds to each document
    ending: int = 0  # tokens at the end of each document that a cut does not remove, such as [SEP]
    shift: int = 0  # an id minus the vocabulary's id


def own_tokens(texts: Iterable[str], cfg: DataConfig) -> Tokens:
    """The tokens of a vocabulary of these texts, each with data.vocabulary.ending. Raises
    InputError if the vocabulary has only special entries."""
    own = cfg.vocabulary
    if own.file is not None:
        vocabulary = read_tokenizer_file(Path(own.file), "write it with Tokenizer.save")
    elif own.unit == "bytes":
        vocabulary = byte_vocabulary()
    else:
        build = {"words": build_vocabulary, "characters": character_vocabulary}[own.unit]
        vocabulary = build((text + own.ending for text in texts), own.max_size, own.min_count)
    if own.file is None and vocabulary.get_vocab_size() == len(SPECIAL):
        characters = ", or data.vocabulary.unit=characters for texts without spaces between words"
        other = characters if own.unit == "words" else ""
        raise InputError(
            f"data.vocabulary.min_count: {cfg.name} has no {own.unit} that occur {own.min_count} "
            f"times; use a smaller number{other}"
        )
    tokens = tokens_of(own, vocabulary)
    encode = tokens.encode
    return replace(tokens, encode=lambda texts: encode([text + own.ending for text in texts]))


def tokens_of(own: VocabularyConfig, vocabulary: Tokenizer) -> Tokens:
    """The tokens of the config's vocabulary, for texts without an ending."""
    shift = 0 if own.file is None else len(SPECIAL)
    if own.file is not None or own.unit == "words":
        encode = text_encoder(vocabulary, shift)
    else:
        encode = encode_bytes if own.unit == "bytes" else character_encoder(vocabulary)
    return Tokens(vocabulary, encode, max(vocabulary.get_vocab().values()) + 1 + shift, shift=shift)


def build_vocabulary(texts: Iterable[str], max_size: int, min_count: int) -> Tokenizer:
    """A tokenizer with the most frequent words of the texts; ties are in alphabetical order.

    It has at most `max_size` entries, the two special ones included. Each word occurs at least
    `min_count` times.
    """
    counts: Counter[str] = Counter()
    words = Counter(chain.from_iterable(map(WORD.findall, texts)))
    for word, n in words.items():  # each distinct word once, because texts repeat words
        counts[LOWER.normalize_str(word)] += n
    tokenizer = Tokenizer(_most_frequent(counts, max_size, min_count))
    tokenizer.normalizer, tokenizer.pre_tokenizer = LOWER, WhitespaceSplit()
    return tokenizer


def character_vocabulary(texts: Iterable[str], max_size: int, min_count: int) -> Tokenizer:
    """As `build_vocabulary`, of the characters of the texts."""
    return Tokenizer(_most_frequent(Counter(chain.from_iterable(texts)), max_size, min_count))


def _most_frequent(counts: Counter[str], max_size: int, min_count: int) -> WordLevel:
    frequent = (token for token, n in counts.items() if n >= min_count and token not in SPECIAL)
    ordered = sorted(frequent, key=lambda token: (-counts[token], token))
    ids = {token: i for i, token in enumerate(SPECIAL + ordered[: max_size - len(SPECIAL)])}
    return WordLevel(ids, unk_token=SPECIAL[UNKNOWN])


def portions(texts: Iterable[str], poll: Poll) -> Iterator[list[str]]:
    """The texts in lists of about PORTION characters; `poll` is called before each of them."""
    portion: list[str] = []
    characters = 0
    for text in texts:
        portion.append(text)
        characters += len(text)
        if characters >= PORTION:
            poll()
            yield portion
            portion, characters = [], 0
    if portion:
        poll()
        yield portion


def in_a_row(documents: list[list[int]], size: int) -> tuple[np.ndarray, np.ndarray]:
    """The ids of documents, below `size`, as (T,) uint16 or uint32, and their offsets
    (documents + 1,)."""
    offsets = np.cumsum([0, *map(len, documents)], dtype=np.int64)
    ids = chain.from_iterable(documents)
    return np.fromiter(ids, kind_of_ids(size), count=offsets[-1]), offsets


def kind_of_ids(size: int) -> type[np.unsignedinteger]:
    """The type of ids below `size`."""
    return np.uint16 if size <= 2**16 else np.uint32


def character_encoder(vocabulary: Tokenizer) -> Encoder:
    """As `text_encoder`, with the ids of `character_vocabulary`; no text is empty."""
    id_of = np.full(sys.maxunicode + 1, UNKNOWN, kind_of_ids(vocabulary.get_vocab_size()))
    for character, i in vocabulary.get_vocab().items():
        if character not in SPECIAL:
            id_of[ord(character)] = i

    def encode(texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        points = np.frombuffer("".join(texts).encode("utf-32-le"), np.dtype("<u4"))
        return id_of[points], np.cumsum([0, *map(len, texts)], dtype=np.int64)

    return encode


def tokenizer_file_digest(path: str) -> str:
    """sha256 of a user's tokenizer. Raises InputError if the file is missing."""
    if not Path(path).is_file():
        raise InputError(f"data.vocabulary.file: no file {path}; write one with Tokenizer.save")
    return files_digest({"tokenizer": Path(path)})


def read_tokenizer_file(file: Path, fix: str) -> Tokenizer:
    """The tokenizer in a file, without its cutting and padding, which are done later.

    Raises InputError with the fix if the file cannot be read or has no tokens."""
    with input_errors(f"{file}: not a tokenizer", fix):
        tokenizer = Tokenizer.from_str(read_bytes(file, LARGEST_TOKENIZER).decode())
        if not tokenizer.get_vocab():
            raise ValueError("no tokens")
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def unknown_of(tokenizer: Tokenizer) -> int | None:
    """The id of unknown tokens of a file's tokenizer; None if every text is known."""
    model = json.loads(tokenizer.to_str())["model"]
    unknown: int | None = model.get("unk_id")  # of a Unigram model; other models name the token
    if unknown is None and model.get("unk_token") is not None:
        unknown = tokenizer.token_to_id(model["unk_token"])
    return unknown


def text_encoder(tokenizer: Tokenizer, shift: int = 0) -> Encoder:
    """Texts -> ids of all tokens (T,) uint16 or uint32, and offsets (documents + 1,) int64.

    Document i has the ids[offsets[i]:offsets[i + 1]], which are the tokenizer's plus `shift`,
    without its special tokens. A document without tokens is one `<unk>`. No id is 0: only batches
    add padding.
    """
    size = max(tokenizer.get_vocab().values()) + 1 + shift
    unknown = unknown_of(tokenizer) if shift else PAD  # a text may contain the word "<pad>"

    def encode(texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        with input_errors("data.vocabulary.file: cannot encode the texts", "correct the file"):
            encoded = tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        documents = [[i + shift for i in d.ids] if shift else d.ids for d in encoded]
        ids, offsets = in_a_row([document or [UNKNOWN] for document in documents], size)
        if unknown is not None:
            ids[ids == unknown + shift] = UNKNOWN
        return ids, offsets

    return encode


def byte_vocabulary() -> Tokenizer:
    """Byte b has the id b + 2. Printable ASCII is its own name; other bytes are named <0x0A>."""
    names = [chr(b) if 32 <= b < 127 else f"<0x{b:02X}>" for b in range(256)]
    ids = {name: i for i, name in enumerate(SPECIAL + names)}
    return Tokenizer(WordLevel(ids, unk_token=SPECIAL[UNKNOWN]))


def encode_bytes(texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """As the encoder of `text_encoder`, with the ids of `byte_vocabulary`; no text is empty."""
    encoded = [text.encode() for text in texts]
    ids = np.frombuffer(b"".join(encoded), dtype=np.uint8).astype(np.uint16) + len(SPECIAL)
    return ids, np.cumsum([0, *map(len, encoded)], dtype=np.int64)
