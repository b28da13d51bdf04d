"""Counts what a GPU would be asked for: operations started, and numbers read back."""

from contextlib import ExitStack
from unittest.mock import patch

import torch
from torch.utils._python_dispatch import TorchDispatchMode

READS = {"_local_scalar_dense", "nonzero", "is_nonzero", "equal", "_unique2", "unique_dim", "bincount", "item"}
VIEWS = {
    *(
        "view",
        "_unsafe_view",
        "t",
        "transpose",
        "permute",
        "expand",
        "unsqueeze",
        "squeeze",
        "slice",
        "select",
        "split",
    ),
    *("split_with_sizes", "unbind", "detach", "alias", "empty", "new_empty", "lift_fresh", "scalar_tensor"),
}


class Counting(TorchDispatchMode):
    """`operations` that would each start a kernel, and `reads` that would each wait for the device."""

    def __init__(self):
        super().__init__()
        self.operations = self.reads = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        self.operations += name not in VIEWS
        self.reads += name in READS
        return func(*args, **(kwargs or {}))

    def __enter__(self):
        self._patches = ExitStack()
        for name in ("tolist", "cpu"):  # both copy from the device at once, without an operation of their own here
            self._patches.enter_context(patch.object(torch.Tensor, name, self._reading(getattr(torch.Tensor, name))))
        return super().__enter__()

    def __exit__(self, *error):
        self._patches.close()
        return super().__exit__(*error)

    def _reading(self, method):
        def read(tensor):
            self.reads += 1
            return method(tensor)

        return read
