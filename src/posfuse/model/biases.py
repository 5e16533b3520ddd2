"""Biases on the scores, computed from the positions of query and key: Sandwich, KERPLE, FIRE.

Shapes: H heads, L tokens, Q of them as queries, N positions for which an encoding has rows; i is
the position of a query, j that of a key.
"""

import math

import torch
from torch import Tensor, nn

from posfuse.model.attention_encoding import AttentionEncoding, offsets
from posfuse.model.initial_values import check_choice, check_positive, linear_


class Sandwich(AttentionEncoding):
    """p_i . p_j H / (8h) is added to the scores of head h = 1 .. H. p_i . p_j, the product of two
    sinusoidal vectors, is the sum over m < d_bar / 2 of cos((i - j) / 10000^(2m / d_bar)) (Chi et
    al. 2023, Dissecting Transformer Length Extrapolation via the Lens of Receptive Field Analysis).
    It has no parameters and is symmetric.

    d_bar / 2, the sum at i = j, is subtracted. This does not change a softmax, and half precision
    rounds small numbers less.
    """

    sums: Tensor
    factors: Tensor

    def __init__(self, d_model: int, n_heads: int, max_len: int, d_bar: int = 128) -> None:
        super().__init__(d_model, n_heads, max_len)
        if d_bar < 2 or d_bar % 2:
            raise ValueError(f"d_bar is {d_bar}; use an even number of at least 2")
        self.rows = max_len
        distances = torch.arange(max_len, dtype=torch.float64)
        sums = torch.full((max_len,), -d_bar / 2, dtype=torch.float64)
        for m in range(d_bar // 2):
            sums += (distances / 10000 ** (2 * m / d_bar)).cos()
        factors = n_heads / (8 * torch.arange(1, n_heads + 1))
        self.register_buffer("sums", sums.float(), persistent=False)  # by distance, (N,)
        self.register_buffer("factors", factors, persistent=False)

    def extra(self, q: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return self.factors[:, None, None] * self.sums[offsets(i, j).abs()]


class Kerple(AttentionEncoding):
    """-r1 log(1 + r2 |i - j|) is added to the scores, or -r1 |i - j|^r2 with kernel="power". Each
    head learns r1 > 0 and r2 > 0; all layers share them (Chi et al. 2022, KERPLE: Kernelized
    Relative Positional Embedding for Length Extrapolation).

    The parameters are the logarithms of r1 and r2. For the power kernel r2 < 2, and its parameter
    is the logit of r2 / 2. The initial values are those of the authors' code: r1 ~ U(0, 2) and r2 ~
    U(0, 1), for the power r1 ~ U(0, 1) and r2 ~ U(0, 2).
    """

    learned = True
    scalars = ("raw_r1", "raw_r2")

    def __init__(
        self, d_model: int, n_heads: int, max_len: int, kernel: str = "logarithmic"
    ) -> None:
        super().__init__(d_model, n_heads, max_len)
        check_choice("kernel", kernel, "logarithmic", "power")
        self.kernel = kernel
        self.raw_r1 = nn.Parameter(torch.empty(n_heads))
        self.raw_r2 = nn.Parameter(torch.empty(n_heads))
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        for raw in (self.raw_r1, self.raw_r2):
            nn.init.uniform_(raw, 0.005, 0.995)
        if self.kernel == "power":
            self.raw_r1.log_()
            self.raw_r2.logit_()
        else:
            self.raw_r1.mul_(2).log_()
            self.raw_r2.log_()

    def r1(self) -> Tensor:
        """(H,), above 0."""
        return self.raw_r1.exp()

    def r2(self) -> Tensor:
        """(H,), above 0; for the power kernel below 2."""
        return 2 * self.raw_r2.sigmoid() if self.kernel == "power" else self.raw_r2.exp()

    def extra(self, q: Tensor, i: Tensor, j: Tensor) -> Tensor:
        r1, r2 = self.r1()[:, None, None], self.r2()[:, None, None]
        distance = offsets(i, j).abs().to(r2.dtype)
        grown = distance**r2 if self.kernel == "power" else (r2 * distance).log1p()
        return (-r1 * grown).to(q.dtype)


class Fire(AttentionEncoding):
    """f(x) is added to the scores: f is an MLP with one hidden layer of ReLUs, one input and one
    output for each head; x = psi(i - j) / psi(max(i + 1, L0)), psi(y) = log(c y + 1) (Li et al.
    2024, Functional Interpolation for Relative Positions Improves Long Context Transformers).
    c and the threshold L0 are learned; `start_c` and `start_threshold` are their initial values.

    A key after the query, which the paper does not have, gets x = -psi(j - i) / psi(max(j + 1,
    L0)). The MLP has no bias at its output, because a softmax would not change. Each layer has its
    own parameters; with `shared` all layers share them (the paper's FIRE-S).
    """

    learned = True
    scalars = ("log_c", "log_threshold")

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        max_len: int,
        hidden: int = 32,
        start_c: float = 0.1,
        start_threshold: float = 512.0,
        shared: bool = False,
    ) -> None:
        super().__init__(d_model, n_heads, max_len)
        check_positive(hidden=hidden, start_c=start_c, start_threshold=start_threshold)
        self.per_layer = not shared
        self.start_c, self.start_threshold = start_c, start_threshold
        self.log_c = nn.Parameter(torch.empty(()))
        self.log_threshold = nn.Parameter(torch.empty(()))
        self.weight_in = nn.Parameter(torch.empty(hidden))
        self.bias_in = nn.Parameter(torch.empty(hidden))
        self.weight_out = nn.Parameter(torch.empty(n_heads, hidden))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.constant_(self.log_c, math.log(self.start_c))
        nn.init.constant_(self.log_threshold, math.log(self.start_threshold))
        linear_(1, self.weight_in, self.bias_in)  # as nn.Linear
        linear_(len(self.weight_in), self.weight_out)

    def extra(self, q: Tensor, i: Tensor, j: Tensor) -> Tensor:
        offset = offsets(i, j)
        # psi increases, so the psi of a maximum is the maximum of vectors.
        last = torch.maximum(self.psi(i + 1)[:, None], self.psi(j + 1))
        x = -offset.sign() * self.psi(offset.abs())
        x = x / torch.maximum(last, self.psi(self.log_threshold.exp()))
        return self.mlp(x).to(q.dtype)

    def psi(self, y: Tensor) -> Tensor:
        """log(c y + 1) of y >= 0."""
        return (self.log_c.exp() * y).log1p()

    def mlp(self, x: Tensor) -> Tensor:
        """x (Q, L), between -2 and 2 -> f(x), (H, Q, L).

        An MLP of ReLUs with one input is piecewise linear. Its hidden layer for all x would be
        (Q, L, hidden) numbers; here each x takes the slope and the height of its piece.
        """
        knots = (-self.bias_in / self.weight_in).detach().nan_to_num(2.0).clamp(-2, 2).sort().values
        ends = torch.cat((knots.new_tensor([-3.0]), knots, knots.new_tensor([3.0])))
        middles = (ends[1:] + ends[:-1])[:, None] / 2  # (hidden + 1, 1)
        active = (self.weight_in * middles + self.bias_in > 0).to(x.dtype)
        slopes = self.weight_out @ (active * self.weight_in).T  # (H, hidden + 1)
        heights = self.weight_out @ (active * self.bias_in).T
        piece = torch.bucketize(x.detach(), knots).expand(len(slopes), -1, -1)
        slope, height = (
            of_piece[:, None].expand(-1, len(x), -1).gather(-1, piece)
            for of_piece in (slopes, heights)
        )
        return torch.addcmul(height, slope, x)
