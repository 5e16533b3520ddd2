"""Word-level vocabulary: lower case, split on white space, `<pad>` = 0, `<unk>` = 1."""

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
