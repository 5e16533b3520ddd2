"""The plain loop: straightforward training after the description of the authors' notebooks.

Every text is split into words each time it is read, padded to max_len, and its padding masked.
nn.TransformerEncoder does the rest, in float32; torch's fast path for evaluation is on.

Shapes: B documents, L = max_len tokens, d = d_model, C classes.
"""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

PAD, UNKNOWN = 0, 1


def ids_of(text: str, words: dict[str, int], max_len: int) -> list[int]:
    return [words.get(word, UNKNOWN) for word in text.lower().split()][:max_len]


def encode(texts: list[str], words: dict[str, int], max_len: int) -> Tensor:
    """Texts -> ids (B, L)."""
    rows = [ids_of(text, words, max_len) for text in texts]
    return torch.tensor([row + [PAD] * (max_len - len(row)) for row in rows])


class PlainClassifier(nn.Module):
    """Embeddings times sqrt(d) plus the sinusoidal table, encoder, mean, linear."""

    table: Tensor

    def __init__(self, n_words: int, n_classes: int, max_len: int, model: Any) -> None:
        """`n_words` are those of the vocabulary, pad and unknown included; `model` has the sizes,
        as `model` of a run's config."""
        super().__init__()
        d_model = model.d_model
        self.embedding = nn.Embedding(n_words, d_model, padding_idx=PAD)
        self.register_buffer("table", sinusoidal(max_len, d_model))
        layer = nn.TransformerEncoderLayer(
            d_model, model.n_heads, model.d_ff, model.dropout, model.activation, batch_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, model.n_layers)
        self.dropout = nn.Dropout(model.dropout)
        self.head = nn.Linear(d_model, n_classes)

    def forward(self, ids: Tensor) -> Tensor:
        """ids (B, L) -> logits (B, C)."""
        padding = ids == PAD
        x = self.embedding(ids) * math.sqrt(self.embedding.embedding_dim) + self.table
        x = self.encoder(x, src_key_padding_mask=padding)
        valid = (~padding).unsqueeze(-1)
        mean = (x * valid).sum(1) / valid.sum(1)
        logits: Tensor = self.head(self.dropout(mean))
        return logits


def sinusoidal(max_len: int, d_model: int) -> Tensor:
    """(L, d): sines in the even columns, cosines in the odd ones."""
    position = torch.arange(max_len).unsqueeze(1)
    frequency = torch.exp(torch.arange(0, d_model, 2) * (-math.log(10_000.0) / d_model))
    table = torch.zeros(max_len, d_model)
    table[:, 0::2] = torch.sin(position * frequency)
    table[:, 1::2] = torch.cos(position * frequency)
    return table


def train(
    model: PlainClassifier,
    optimizer: torch.optim.Optimizer,
    texts: list[str],
    labels: list[int],
    words: dict[str, int],
    batch_size: int,
    clip_norm: float | None,
) -> None:
    """One pass over the documents, in their order."""
    model.train()
    device, max_len = model.table.device, len(model.table)
    for start in range(0, len(texts), batch_size):
        batch = slice(start, start + batch_size)
        ids = encode(texts[batch], words, max_len).to(device)
        loss = F.cross_entropy(model(ids), torch.tensor(labels[batch], device=device))
        optimizer.zero_grad()
        loss.backward()
        if clip_norm is not None:
            nn.utils.clip_grad_norm_(model.parameters(), clip_norm)
        optimizer.step()


@torch.no_grad()
def evaluate(
    model: PlainClassifier,
    texts: list[str],
    labels: list[int],
    words: dict[str, int],
    batch_size: int,
) -> float:
    """Accuracy, a share."""
    model.eval()
    device, max_len = model.table.device, len(model.table)
    right = 0
    for start in range(0, len(texts), batch_size):
        batch = slice(start, start + batch_size)
        ids = encode(texts[batch], words, max_len).to(device)
        predicted = model(ids).argmax(-1).cpu()
        right += int((predicted == torch.tensor(labels[batch])).sum())
    return right / len(texts)
