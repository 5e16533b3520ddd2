"""The attention part of position encodings, which changes queries, keys or scores.

Shapes: B documents, H heads, L tokens, Q of them as queries, D = d / H features of a head, N
positions for which an encoding has rows. i is the position of a query, j that of a key.
"""

import math

import torch
from torch import Tensor, nn

from posfuse.model.encoding import rotary_angles
from posfuse.model.initial_values import check_positive
from posfuse.model.kernels import attention, block_attention


def offsets(i: Tensor, j: Tensor) -> Tensor:
    """j - i of queries at positions i (Q,) and keys at positions j (L,): (Q, L) int64."""
    return j - i[:, None]


class AttentionEncoding(nn.Module):
    """No position inside attention: the scores are q . k / sqrt(D).

    A subclass changes q and k in `turn`, adds to the scores in `extra`, or both.
    """

    per_layer = False  # True: every block has its own parameters
    learned = False  # True: `extra` has parameters
    trained_length_only = False  # True: each position has parameters of its own
    rows: int | None = None  # N; None: no limit

    def __init__(self, d_model: int, n_heads: int, max_len: int) -> None:
        super().__init__()
        self.n_heads, self.d_head = n_heads, d_model // n_heads

    def turn(self, x: Tensor, positions: Tensor, role: str) -> Tensor:
        """x (B, H, L, D), the q or k of tokens at positions (L,); role is "query" or "key" -> q or
        k for the scores, (B, H, L, D) or with more features. The scores are always q . k /
        sqrt(D)."""
        return x

    def extra(self, q: Tensor, i: Tensor, j: Tensor) -> Tensor | None:
        """q (B, H, Q, D) of queries at positions i (Q,), divided by sqrt(D); keys at positions j
        (L,) -> the term added to the scores, (B, H, Q, L) or (H, Q, L), or None."""
        return None

    def bias(self, positions: Tensor) -> Tensor | None:
        """`extra` of all tokens at positions (L,): (H, L, L). Only if nothing in it is learned:
        then it is the same for every document and layer, and must not depend on q."""
        return None if self.learned else self.extra(positions, positions, positions)

    def forward(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Tensor | None,
        positions: Tensor,
        bias: Tensor | None,
        p: float,
        causal: bool = False,
    ) -> Tensor:
        """q, k, v (B, H, L, D); mask (B, 1, 1, L), True at the keys of valid tokens; positions
        (L,) of the tokens, and their bias; p the dropout of the weights -> (B, H, L, D). Causal
        attention takes no mask; its bias is -inf at keys after the query."""
        q, k = self.turn(q, positions, "query"), self.turn(k, positions, "key")
        if q.shape[-1] != self.d_head:  # the kernels divide by the root of the width
            q = q * (q.shape[-1] / self.d_head) ** 0.5
        if not self.learned:
            return attention(q, k, v, mask, bias, p, causal=causal)
        # torch's fused kernels have no gradient for a term added to the scores.

        def extra(some: Tensor, queries: slice) -> Tensor | None:
            return self.extra(some, positions[queries], positions)

        trained = [x for x in self.parameters() if x.requires_grad]
        return block_attention(q, k, v, mask, p, extra, learned=trained, causal=causal)

    def weights(
        self, q: Tensor, k: Tensor, mask: Tensor | None, positions: Tensor, queries: Tensor
    ) -> Tensor:
        """The weights (B, H, Q, L) of the queries with these indices (Q,); other arguments as in
        `forward`. The plain form of the kernels."""
        q = self.turn(q, positions, "query")[:, :, queries]
        scores = self.scores(q, self.turn(k, positions, "key"), positions[queries], positions)
        if mask is not None:
            scores = scores.masked_fill(~mask, -torch.inf)
        return scores.softmax(-1)

    def scores(self, q: Tensor, k: Tensor, i: Tensor, j: Tensor) -> Tensor:
        """The scores (B, H, Q, L) of queries at positions i (Q,) and keys at positions j (L,), both
        from `turn`."""
        q = q * self.d_head**-0.5
        scores: Tensor = q @ k.transpose(-2, -1)
        extra = self.extra(q, i, j)
        return scores if extra is None else scores + extra


class Rotary(AttentionEncoding):
    """Features (2m, 2m+1) of q and k at position i are rotated by the angle i / base^(2m/D), so
    q_i . k_j depends only on i - j (Su et al. 2021, eq. 34).

    `partial`: the fraction of a head's features that rotate. The first features rotate, as in
    GPT-NeoX, and D above is their number. `interpolation`: divides positions (Chen et al. 2023,
    Extending Context Window of Large Language Models via Position Interpolation, eq. 4).
    `ntk_factor`: multiplies the base by its (D/(D-2))-th power (bloc97's NTK-aware scaling), which
    divides the lowest frequency by the factor and keeps the highest.
    """

    angles: Tensor

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        max_len: int,
        base: float = 10000.0,
        partial: float = 1.0,
        interpolation: float = 1.0,
        ntk_factor: float = 1.0,
    ) -> None:
        super().__init__(d_model, n_heads, max_len)
        check_positive(
            base=base, partial=partial, interpolation=interpolation, ntk_factor=ntk_factor
        )
        turning = round(partial * self.d_head, 6)
        if partial == 1 and turning % 2:
            raise ValueError(
                f"a head has {self.d_head} features, but rotary rotates pairs; use an even "
                "model.d_model / model.n_heads"
            )
        if partial > 1 or turning % 2:
            raise ValueError(
                f"partial is {partial}, which rotates {turning:g} of a head's {self.d_head} "
                "features; use a share that gives an even number of them"
            )
        self.rows, self.turning = max_len, int(turning)
        if self.turning > 2:  # a single pair has the frequency 1 with any base
            base *= ntk_factor ** (self.turning / (self.turning - 2))
        angles = rotary_angles(self.turning, max_len, base, interpolation)
        both = torch.stack((angles.cos(), angles.sin())).float()  # (2, N, D/2)
        self.register_buffer("angles", both, persistent=False)

    def turn(self, x: Tensor, positions: Tensor, role: str) -> Tensor:
        cos, sin = self.angles[:, positions].to(x.dtype)
        turned, still = x[..., : self.turning], x[..., self.turning :]
        even, odd = turned[..., 0::2], turned[..., 1::2]
        pairs = torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1).flatten(-2)
        return torch.cat((pairs, still), -1) if still.shape[-1] else pairs


class Alibi(AttentionEncoding):
    """-m_h |i - j| is added to head h's scores: the symmetric form of Press et al. (2022)."""

    slopes: Tensor

    def __init__(self, d_model: int, n_heads: int, max_len: int) -> None:
        super().__init__(d_model, n_heads, max_len)
        self.register_buffer("slopes", torch.tensor(alibi_slopes(n_heads)), persistent=False)

    def extra(self, q: Tensor, i: Tensor, j: Tensor) -> Tensor:
        # Allocates only one (H, Q, L).
        return (-self.slopes)[:, None, None] * offsets(i, j).abs()


def alibi_slopes(n_heads: int) -> list[float]:
    """2^(-8h/H) for h = 1..H if H is a power of 2; else the slopes of the power of 2 below H, then
    every second slope of the power above H (Press et al. 2022, section 3 and its code)."""
    power = 2 ** math.floor(math.log2(n_heads))
    slopes = [2 ** (-8 * h / power) for h in range(1, power + 1)]
    between = [2 ** (-8 * h / (2 * power)) for h in range(1, 2 * power + 1, 2)]
    return slopes + between[: n_heads - power]


class T5Bias(AttentionEncoding):
    """A learned number for each head and bucket of j - i is added to the scores; all layers share
    it (Raffel et al. 2020, section 2.1, bidirectional)."""

    learned = True

    def __init__(
        self, d_model: int, n_heads: int, max_len: int, n_buckets: int = 32, max_distance: int = 128
    ) -> None:
        super().__init__(d_model, n_heads, max_len)
        if n_buckets < 4 or n_buckets % 4:
            raise ValueError(f"n_buckets is {n_buckets}; use 4 or a multiple of it")
        if max_distance <= n_buckets // 4:
            raise ValueError(
                f"max_distance is {max_distance}; use more than n_buckets / 4 = {n_buckets // 4}"
            )
        self.n_buckets, self.max_distance = n_buckets, max_distance
        self.by_bucket = nn.Parameter(torch.empty(n_buckets, n_heads))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.normal_(self.by_bucket, std=(self.n_heads * self.d_head) ** -0.5)

    def extra(self, q: Tensor, i: Tensor, j: Tensor) -> Tensor:
        buckets = t5_buckets(offsets(i, j), self.n_buckets, self.max_distance)
        # The gradient of gather takes half the time of the gradient of by_bucket[buckets].
        values = self.by_bucket.T[:, None].expand(-1, len(i), -1)  # (H, Q, n_buckets)
        return values.gather(-1, buckets.expand(len(values), -1, -1)).to(q.dtype)


def t5_buckets(offset: Tensor, n_buckets: int, max_distance: int) -> Tensor:
    """Offsets j - i (Q, L) -> their buckets (Q, L), int64. The first half is for keys at or before
    the query, the second half for keys after it. Each distance below n_buckets / 4 has a bucket.
    Then the widths grow geometrically up to max_distance. The last bucket contains all larger
    distances."""
    half = n_buckets // 2
    exact = half // 2
    distance = offset.abs()
    share = (distance.clamp(min=1) / exact).log() / math.log(max_distance / exact)
    far = exact + (share * (half - exact)).long()
    return torch.where(distance < exact, distance, far.clamp(max=half - 1)) + half * (offset > 0)


class RelativeKeys(AttentionEncoding):
    """e_ij = q_i . (k_j + a_clip(j - i, -K, K)) / sqrt(D) with learned a, shared by the heads
    (Shaw et al. 2018, eq. 4, keys only)."""

    per_layer = learned = True

    def __init__(self, d_model: int, n_heads: int, max_len: int, clip: int = 16) -> None:
        super().__init__(d_model, n_heads, max_len)
        if clip < 1:
            raise ValueError(f"clip is {clip}; use 1 or more")
        self.clip = clip
        self.relative_keys = nn.Parameter(torch.empty(2 * clip + 1, self.d_head))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.xavier_uniform_(self.relative_keys)

    def extra(self, q: Tensor, i: Tensor, j: Tensor) -> Tensor:
        index = offsets(i, j).clamp(-self.clip, self.clip) + self.clip
        scores = q @ self.relative_keys.T.to(q.dtype)  # (B, H, Q, 2K + 1)
        return scores.gather(-1, index.expand(*q.shape[:2], *index.shape))
