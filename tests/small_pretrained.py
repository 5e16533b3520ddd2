"""Tiny models of transformers with random values, and a tokenizer, in local folders."""

from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders
from tokenizers.models import BPE, WordPiece
from tokenizers.pre_tokenizers import ByteLevel, Whitespace
from tokenizers.processors import TemplateProcessing
from tokenizers.trainers import BpeTrainer

# As in small_runs.write_corpus; [PAD] has the id that the family expects.
WORDS = [f"w{kind}x{i}" for kind in range(4) for i in range(6)]
ROWS = 40  # of the position tables, those that RoBERTa leaves out included

# With the usual standard deviation of 0.02 a random model hardly depends on order.
SIZES: dict[str, Any] = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": ROWS,
    "initializer_range": 0.5,
}
FAMILIES: dict[str, dict[str, Any]] = {
    "bert": SIZES,
    "roberta": SIZES,
    "electra": {**SIZES, "embedding_size": 8},
    "albert": {**SIZES, "embedding_size": 8},
    "distilbert": {
        "dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 32,
        "max_position_embeddings": ROWS, "initializer_range": 0.5,
    },
}  # fmt: skip


def write_tokenizer(folder: Path, words: list[str] = WORDS, pad: int = 0) -> None:
    special = ["[UNK]", "[CLS]", "[SEP]"]
    special.insert(pad, "[PAD]")
    ids = {word: i for i, word in enumerate([*special, *words])}
    tokenizer = Tokenizer(WordPiece(ids, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[(s, ids[s]) for s in ("[CLS]", "[SEP]")]
    )
    tokenizer.enable_truncation(4)  # as some folders have it; posfuse cuts by data.max_len
    tokenizer.enable_padding(length=4)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))


def byte_bpe(texts: list[str]) -> Tokenizer:
    """A small byte-level BPE, as of GPT-2; its token 0 is a character."""
    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = BpeTrainer(vocab_size=300, initial_alphabet=ByteLevel.alphabet(), show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def write_pretrained(folder: Path, family: str = "bert", **options: Any) -> Path:
    """The folder of a tiny model, as `save_pretrained` writes it, with a tokenizer."""
    import transformers

    pad = 1 if family in ("roberta", "mpnet") else 0
    sizes = {**FAMILIES.get(family, SIZES), **options}
    config = transformers.AutoConfig.for_model(
        family, vocab_size=len(WORDS) + 4, pad_token_id=pad, **sizes
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        transformers.AutoModel.from_config(config).save_pretrained(folder)
    write_tokenizer(folder, pad=pad)
    return folder


def untouched(folder: Path) -> Any:
    """The model of a folder as transformers loads it, in evaluation mode."""
    import transformers

    return transformers.AutoModel.from_pretrained(folder).eval()


def host_overrides(folder: Path) -> list[str]:
    return ["host=transformers", f"host.path={folder}", "encoding=host"]
