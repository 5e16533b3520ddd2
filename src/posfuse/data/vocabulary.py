"""Words or bytes to ids; `<pad>` = 0 and `<unk>` = 1 in both.

Words are lower-cased and split on white space, as `tokenizers` does both. Bytes are the text's
UTF-8 as it stands. Texts are counted and encoded a portion at a time, each of its different words
once: several times as fast as `tokenizers` word by word, and in bounded memory.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.normalizers import Lowercase
from tokenizers.pre_tokenizers import WhitespaceSplit

Encoder = Callable[[Sequence[str]], tuple[np.ndarray, np.ndarray]]  # texts -> ids, offsets
PAD, UNKNOWN = 0, 1
SPECIAL = ["<pad>", "<unk>"]
PORTION = 1 << 22  # characters counted or encoded at a time
# Python and Arrow, and they alone, count four control characters as white space.
CONTROL = r"[\x1c-\x1f]"
WORD = re.compile(r"[\S\x1c-\x1f]+")


def _words(texts: Sequence[str]) -> tuple[pa.Array, np.ndarray, np.ndarray]:
    """The different words, lower-cased; which of them each word of the texts is, (T,); and how
    many each text has, (documents,). A text without a word has one, "".

    A word that the texts spell in two cases is there twice.
    """
    given = pa.array(texts, pa.large_string())
    if pc.any(pc.match_substring_regex(given, CONTROL)).as_py():
        found = [WORD.findall(text) or [""] for text in texts]
        split = pa.array(found, pa.large_list(pa.large_string()))
    else:
        split = pc.utf8_split_whitespace(pc.utf8_trim_whitespace(given))
    words = split.flatten().dictionary_encode()
    lengths = pc.list_value_length(split).to_numpy()
    return _lowered(words.dictionary), words.indices.to_numpy(), lengths


def _lowered(words: pa.Array) -> pa.Array:
    """As `tokenizers` lower-cases them; nothing but ASCII needs it for that."""
    beyond = pc.invert(pc.string_is_ascii(words))
    lowered = pc.ascii_lower(words)
    if not pc.any(beyond).as_py():
        return lowered
    # All at once, since a call of the library takes as long as many words.
    others: str = Lowercase().normalize_str("\n".join(words.filter(beyond).to_pylist()))
    return pc.replace_with_mask(lowered, beyond, pa.array(others.split("\n"), words.type))


def build_vocabulary(texts: Iterable[str], max_size: int, min_count: int) -> Tokenizer:
    """Count words and keep the most frequent; ties go in alphabetical order."""
    parts: list[pa.Table] = []
    for portion in portions(texts):
        words, which, _ = _words(portion)
        parts.append(pa.table({"word": words, "count": np.bincount(which)}))
        # Two of about a size at a time, so that a word is summed a few times, not at each portion.
        while len(parts) > 1 and len(parts[-2]) < 2 * len(parts[-1]):
            parts.append(_summed([parts.pop(), parts.pop()]))
    counts = _summed(parts).filter(
        (pc.field("count") >= min_count)
        & ~pc.field("word").isin(["", *SPECIAL])  # a text cannot spell the special ones
    )
    order = [("count", "descending"), ("word", "ascending")]
    frequent = pc.select_k_unstable(counts, max_size - len(SPECIAL), order)
    kept = counts["word"].take(frequent).to_pylist()
    tokenizer = Tokenizer(
        WordLevel({w: i for i, w in enumerate(SPECIAL + kept)}, unk_token=SPECIAL[UNKNOWN])
    )
    tokenizer.normalizer = Lowercase()
    tokenizer.pre_tokenizer = WhitespaceSplit()
    return tokenizer


def _summed(parts: list[pa.Table]) -> pa.Table:
    """One row a word; by its place in a dictionary, at a fraction of what `group_by` takes."""
    both = pa.concat_tables(parts)
    words = both["word"].dictionary_encode()
    counts = np.zeros(len(words.chunk(0).dictionary), np.int64)
    places = np.concatenate([chunk.indices.to_numpy() for chunk in words.chunks])
    np.add.at(counts, places, both["count"].to_numpy())
    return pa.table({"word": words.chunk(0).dictionary, "count": counts})


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


def word_encoder(tokenizer: Tokenizer) -> Encoder:
    """Texts -> ids of all tokens (T,) uint16 or uint32, and offsets (documents + 1,) int64.

    Document i is ids[offsets[i]:offsets[i + 1]]. No document is empty: one without a word is one
    `<unk>`. No id is 0: padding is what batches add, never what a text says.
    """
    ids: dict[str, int] = tokenizer.get_vocab()
    kind = np.uint16 if len(ids) <= 2**16 else np.uint32
    # Without the special ones, which a text cannot spell.
    known = pa.array(sorted(ids, key=ids.__getitem__)[len(SPECIAL) :], pa.large_string())

    def encode(texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        words, which, lengths = _words(texts)
        places = pc.fill_null(pc.index_in(words, known), UNKNOWN - len(SPECIAL))
        id_of = (places.to_numpy() + len(SPECIAL)).astype(kind)
        return id_of[which], np.cumsum([0, *lengths], dtype=np.int64)

    return encode


def byte_vocabulary() -> Tokenizer:
    """Byte b has the id b + 2; printable ASCII is spelt as itself, all else as <0x0A>."""
    spelt = [chr(b) if 32 <= b < 127 else f"<0x{b:02X}>" for b in range(256)]
    ids = {spelling: i for i, spelling in enumerate(SPECIAL + spelt)}
    return Tokenizer(WordLevel(ids, unk_token=SPECIAL[UNKNOWN]))


def encode_bytes(texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """As `word_encoder`'s, by `byte_vocabulary`, of texts that are not empty."""
    encoded = [text.encode() for text in texts]
    ids = np.frombuffer(b"".join(encoded), dtype=np.uint8).astype(np.uint16) + len(SPECIAL)
    return ids, np.cumsum([0, *map(len, encoded)], dtype=np.int64)
