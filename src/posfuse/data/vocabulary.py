"""Words or bytes to ids; `<pad>` = 0 and `<unk>` = 1 in both.

Words are lower-cased and split on white space. Bytes are the text's UTF-8 as it stands.
"""

from collections.abc import Iterable, Sequence

import numpy as np
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.normalizers import Lowercase
from tokenizers.pre_tokenizers import WhitespaceSplit
from tokenizers.trainers import WordLevelTrainer

PAD, UNKNOWN = 0, 1
SPECIAL = ["<pad>", "<unk>"]
CHUNK = 1000  # documents encoded at a time


def _tokenizer(words: dict[str, int] | None) -> Tokenizer:
    tokenizer = Tokenizer(WordLevel(words, unk_token=SPECIAL[UNKNOWN]))
    tokenizer.normalizer = Lowercase()
    tokenizer.pre_tokenizer = WhitespaceSplit()
    return tokenizer


def build_vocabulary(texts: Iterable[str], max_size: int, min_count: int) -> Tokenizer:
    """Count words and keep the most frequent; ties go in alphabetical order."""
    trained = _tokenizer({})
    trainer = WordLevelTrainer(vocab_size=max_size, min_frequency=min_count, show_progress=False)
    trained.train_from_iterator(texts, trainer)
    # The trainer never sees <pad> and <unk>: it would look for them inside raw text, and count
    # those that a text spells as words of their own, with ids of their own.
    counted = trained.get_vocab()
    words = [word for word in sorted(counted, key=counted.__getitem__) if word not in SPECIAL]
    kept = SPECIAL + words[: max_size - len(SPECIAL)]
    return _tokenizer({word: i for i, word in enumerate(kept)})


def encode(tokenizer: Tokenizer, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Texts -> ids of all tokens (T,) uint16 or uint32, and offsets (documents + 1,) int64.

    Document i is ids[offsets[i]:offsets[i + 1]]. No document is empty: one without a word is one
    `<unk>`. No id is 0: padding is what batches add, never what a text says.
    """
    kind = np.uint16 if tokenizer.get_vocab_size() <= 2**16 else np.uint32
    parts: list[np.ndarray] = []
    lengths = np.zeros(len(texts) + 1, dtype=np.int64)
    for start in range(0, len(texts), CHUNK):
        encodings = tokenizer.encode_batch_fast(list(texts[start : start + CHUNK]))
        for i, encoding in enumerate(encodings, start):
            ids = np.asarray(encoding.ids or [UNKNOWN], dtype=kind)
            ids[ids == PAD] = UNKNOWN
            parts.append(ids)
            lengths[i + 1] = len(ids)
    return np.concatenate(parts) if parts else np.zeros(0, dtype=kind), np.cumsum(lengths)


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
