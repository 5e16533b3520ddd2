"""Words or bytes to ids; `<pad>` = 0 and `<unk>` = 1 in both.

Words are lower-cased and split on white space, as `tokenizers` does both. Bytes are the text's
UTF-8 as it stands. Texts are counted and encoded a portion at a time, each of its different words
once: several times as fast as `tokenizers` word by word, and in bounded memory.
"""

import heapq
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

import numpy as np
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.normalizers import Lowercase
from tokenizers.pre_tokenizers import WhitespaceSplit

PAD, UNKNOWN = 0, 1
SPECIAL = ["<pad>", "<unk>"]
PORTION = 1 << 21  # characters counted or encoded at a time
# Python, and it alone, counts four control characters as white space.
CONTROL = re.compile(r"[\x1c-\x1f]")
WORD = re.compile(r"[\S\x1c-\x1f]+")


def _split(text: str) -> list[str]:
    return WORD.findall(text) if CONTROL.search(text) else text.split()


def _lowered(words: Iterable[str]) -> list[str]:
    """All at once, since a call of the library takes as long as many words."""
    text: str = Lowercase().normalize_str("\n".join(words))
    return text.split("\n")


def build_vocabulary(texts: Iterable[str], max_size: int, min_count: int) -> Tokenizer:
    """Count words and keep the most frequent; ties go in alphabetical order."""
    counts: dict[str, int] = {}
    for portion in portions(texts):
        found = Counter(chain.from_iterable(map(_split, portion)))
        for word, count in zip(_lowered(found), found.values(), strict=False):  # "" of no words
            counts[word] = counts.get(word, 0) + count
    for word in SPECIAL:
        counts.pop(word, None)  # a text cannot spell them
    frequent = ((-count, word) for word, count in counts.items() if count >= min_count)
    kept = [word for _, word in heapq.nsmallest(max_size - len(SPECIAL), frequent)]
    tokenizer = Tokenizer(
        WordLevel({w: i for i, w in enumerate(SPECIAL + kept)}, unk_token=SPECIAL[UNKNOWN])
    )
    tokenizer.normalizer = Lowercase()
    tokenizer.pre_tokenizer = WhitespaceSplit()
    return tokenizer


def portions(texts: Iterable[str]) -> Iterator[list[str]]:
    """The texts in lists of about PORTION characters."""
    portion: list[str] = []
    characters = 0
    for text in texts:
        portion.append(text)
        characters += len(text)
        if characters >= PORTION:
            yield portion
            portion, characters = [], 0
    if portion:
        yield portion


def encode(ids_of: dict[str, int], texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Texts -> ids of all tokens (T,) uint16 or uint32, and offsets (documents + 1,) int64;
    `ids_of` are the ids of the vocabulary's words.

    Document i is ids[offsets[i]:offsets[i + 1]]. No document is empty: one without a word is one
    `<unk>`. No id is 0: padding is what batches add, never what a text says.
    """
    kind = np.uint16 if len(ids_of) <= 2**16 else np.uint32
    documents = [_split(text) or [SPECIAL[UNKNOWN]] for text in texts]
    offsets = np.cumsum([0, *map(len, documents)], dtype=np.int64)
    different = dict.fromkeys(chain.from_iterable(documents))
    known = (ids_of.get(word, UNKNOWN) or UNKNOWN for word in _lowered(different))
    id_of = dict(zip(different, known, strict=False))
    words = chain.from_iterable(documents)
    return np.fromiter(map(id_of.__getitem__, words), kind, count=offsets[-1]), offsets


def byte_vocabulary() -> Tokenizer:
    """Byte b has the id b + 2; printable ASCII is spelt as itself, all else as <0x0A>."""
    spelt = [chr(b) if 32 <= b < 127 else f"<0x{b:02X}>" for b in range(256)]
    ids = {spelling: i for i, spelling in enumerate(SPECIAL + spelt)}
    return Tokenizer(WordLevel(ids, unk_token=SPECIAL[UNKNOWN]))


def encode_bytes(texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """As `encode`, by `byte_vocabulary`, of texts that are not empty."""
    encoded = [text.encode() for text in texts]
    ids = np.frombuffer(b"".join(encoded), dtype=np.uint8).astype(np.uint16) + len(SPECIAL)
    return ids, np.cumsum([0, *map(len, encoded)], dtype=np.int64)
