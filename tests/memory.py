"""The tensors that operations hold, counted while they run."""

import weakref

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Peak(TorchDispatchMode):
    """Counts the bytes of the tensors that operations return: the most `held` at once, and
    the most numbers in one, `numel`. What a kernel holds inside is not seen."""

    def __init__(self):
        super().__init__()
        self.now = self.held = self.numel = 0
        self.known = weakref.WeakSet()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        for x in tree_leaves(out):
            if isinstance(x, torch.Tensor) and (storage := x.untyped_storage()) not in self.known:
                n = storage.nbytes()
                self.known.add(storage)
                self.now += n
                self.numel = max(self.numel, n // x.element_size())
                weakref.finalize(storage, self.free, n)
        self.held = max(self.held, self.now)
        return out

    def free(self, n):
        self.now -= n
