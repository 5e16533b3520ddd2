"""Absolute positions inside attention: learned vectors of query and key positions, whose product is
added to the scores.

Shapes: B documents, H heads, L tokens, D = d / H features of a head, N positions. i is the position
of a query, j that of a key.
"""

from abc import abstractmethod

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from posfuse.model.attention_encoding import AttentionEncoding


class AbsoluteScores(AttentionEncoding):
    """a_i . b_j / sqrt(D) is added to the scores. a and b are appended to q and k as further
    features, so no (H, L, L) numbers exist."""

    trained_length_only = True

    @abstractmethod
    def features(self, positions: Tensor, role: str) -> Tensor:
        """a (role "query") or b (role "key") at these positions (L,): (H, L, r)."""

    def turn(self, x: Tensor, positions: Tensor, role: str) -> Tensor:
        features = self.features(positions, role).to(x.dtype)
        return torch.cat((x, features.expand(len(x), -1, -1, -1)), -1)


class Tupe(AbsoluteScores):
    """The scores are (q_i . k_j + (p_i U_Q) . (p_j U_K)) / sqrt(2D) with learned vectors p and
    matrices U of each head, which all layers share (Ke et al. 2021, Rethinking Positional Encoding
    in Language Pre-training, TUPE-A).

    There is no [CLS], and p starts from N(0, 1) instead of passing a LayerNorm.
    """

    def __init__(self, d_model: int, n_heads: int, max_len: int) -> None:
        super().__init__(d_model, n_heads, max_len)
        self.rows = max_len
        self.vectors = nn.Parameter(torch.empty(max_len, d_model))
        self.weight_query = nn.Parameter(torch.empty(d_model, d_model))
        self.weight_key = nn.Parameter(torch.empty(d_model, d_model))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.normal_(self.vectors)
        nn.init.xavier_uniform_(self.weight_query)
        nn.init.xavier_uniform_(self.weight_key)

    def features(self, positions: Tensor, role: str) -> Tensor:
        weight = self.weight_query if role == "query" else self.weight_key
        projected = F.linear(self.vectors[positions], weight)
        return projected.view(len(positions), self.n_heads, -1).transpose(0, 1)

    def turn(self, x: Tensor, positions: Tensor, role: str) -> Tensor:
        both = super().turn(x, positions, role)
        return both * 2**-0.5 if role == "query" else both


class Diet(AbsoluteScores):
    """The scores are q_i . k_j / sqrt(D) + P_Q[i] . P_K[j] with learned vectors of each head, which
    have `rank` features (null: D) and which all layers share (Chen et al. 2021, A Simple and
    Effective Positional Encoding for Transformers, eq. 1, DIET-ABS without segments).

    They start from N(0, 0.02^2), as BERT's parameters: the paper states no other values.
    """

    def __init__(self, d_model: int, n_heads: int, max_len: int, rank: int | None = None) -> None:
        super().__init__(d_model, n_heads, max_len)
        if rank is not None and rank < 1:
            raise ValueError(f"rank is {rank}; use 1 or more, or null for the features of a head")
        self.rows = max_len
        shape = n_heads, max_len, rank or self.d_head
        self.query_vectors = nn.Parameter(torch.empty(shape))
        self.key_vectors = nn.Parameter(torch.empty(shape))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.normal_(self.query_vectors, std=0.02)
        nn.init.normal_(self.key_vectors, std=0.02)

    def features(self, positions: Tensor, role: str) -> Tensor:
        if role == "key":
            return self.key_vectors[:, positions]
        return self.query_vectors[:, positions] * self.d_head**0.5
