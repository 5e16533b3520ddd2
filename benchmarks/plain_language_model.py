"""The plain loop of a small GPT on bytes, written from the description of nanoGPT.

Learned positions are added to the token embeddings. Pre-norm blocks follow, and a LayerNorm; they
have biases or, as by default, none. The output layer is the embeddings. AdamW decays the matrices
alone, and is not fused, as in nanoGPT on a CPU. The learning rate rises over the first steps and
falls with a cosine to a tenth. Windows begin at random bytes. Attention is torch's causal kernel.

Shapes: B windows, L bytes, d = d_model, H heads.
"""

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

BYTES = 256
WARMUP, LAST = 100, 0.1  # steps; share of the learning rate at the end
BETAS, DECAY, CLIP_NORM = (0.9, 0.99), 0.1, 1.0


class PlainBlock(nn.Module):
    def __init__(self, d_model: int, n_heads: int, bias: bool) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.norm1 = nn.LayerNorm(d_model, bias=bias)
        self.qkv = nn.Linear(d_model, 3 * d_model, bias=bias)
        self.out = nn.Linear(d_model, d_model, bias=bias)
        self.norm2 = nn.LayerNorm(d_model, bias=bias)
        self.up = nn.Linear(d_model, 4 * d_model, bias=bias)
        self.down = nn.Linear(4 * d_model, d_model, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        """x (B, L, d) -> (B, L, d)."""
        heads = self.qkv(self.norm1(x)).unflatten(-1, (3, self.n_heads, -1))
        q, k, v = heads.permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class PlainLanguageModel(nn.Module):
    def __init__(
        self, d_model: int, n_heads: int, n_layers: int, block: int, bias: bool = False
    ) -> None:
        super().__init__()
        self.tokens = nn.Embedding(BYTES, d_model)
        self.positions = nn.Embedding(block, d_model)
        self.blocks = nn.ModuleList(PlainBlock(d_model, n_heads, bias) for _ in range(n_layers))
        self.norm = nn.LayerNorm(d_model, bias=bias)
        for name, parameter in self.named_parameters():
            if name.endswith("bias"):
                nn.init.zeros_(parameter)
            if parameter.dim() == 2:
                last = name.endswith(("out.weight", "down.weight"))  # of a residual branch
                std = 0.02 / math.sqrt(2 * n_layers) if last else 0.02
                nn.init.normal_(parameter, std=std)

    def forward(self, ids: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """ids (B, L) -> the logits of each next byte, (B, L, 256), and their mean loss."""
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.norm(x), self.tokens.weight)
        return logits, F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def optimizer(model: PlainLanguageModel, lr: float) -> torch.optim.AdamW:
    matrices = [p for p in model.parameters() if p.dim() == 2]
    others = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": matrices, "weight_decay": DECAY}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=lr, betas=BETAS)


def learning_rate(step: int, steps: int, lr: float) -> float:
    """Of a step, from 0; `steps` are those of the whole training."""
    if step < WARMUP:
        return lr * (step + 1) / (WARMUP + 1)
    done = (step - WARMUP) / max(steps - WARMUP, 1)
    return lr * (LAST + (1 - LAST) * 0.5 * (1 + math.cos(math.pi * done)))


def random_windows(text: np.ndarray, batch: int, block: int) -> tuple[Tensor, Tensor]:
    """Bytes (B, L) that begin at random places of the text, and their successors."""
    starts = torch.randint(len(text) - block, (batch,)).tolist()
    rows = [torch.from_numpy(text[i : i + block + 1].astype(np.int64)) for i in starts]
    whole = torch.stack(rows)
    return whole[:, :-1].contiguous(), whole[:, 1:].contiguous()


def train(
    model: nn.Module,
    updates: torch.optim.Optimizer,
    text: np.ndarray,
    batch: int,
    block: int,
    steps: int,
    lr: float,
) -> None:
    """So many steps. The model returns logits and loss, as that of nanoGPT does."""
    model.train()
    for step in range(steps):
        for group in updates.param_groups:
            group["lr"] = learning_rate(step, steps, lr)
        _, loss = model(*random_windows(text, batch, block))
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), CLIP_NORM)
        updates.step()
        updates.zero_grad()


@torch.no_grad()
def bits_per_byte(model: nn.Module, ids: Tensor, targets: Tensor) -> float:
    """Of windows (windows, L) of bytes and their successors."""
    model.eval()
    parts = zip(ids.split(256), targets.split(256), strict=True)
    total = sum(float(model(some, of)[1]) * of.numel() for some, of in parts)
    return total / targets.numel() / math.log(2)
