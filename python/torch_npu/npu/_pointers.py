# SPDX-License-Identifier: Apache-2.0
"""Addresses of npu memory that leave PyTorch: code that has one may write there unseen.

Only where rung 5 keeps host copies (docs/architecture.md, Shadows): memory whose address was asked for has none.
"""

import functools
import sys

import torch

from torch_npu import _C

# They compare addresses and write nothing through them.
_HARMLESS = (
    "torch.serialization",
    "torch.storage",
    "torch._tensor",
    "torch_npu.utils.combine_tensors",
)


_storage_address = torch.UntypedStorage.data_ptr


def watch() -> None:
    """Puts the three methods that give addresses in place of PyTorch's, where it matters."""
    if _C._shadow_stats() is None:
        return
    for owner, name in (
        (torch.Tensor, "data_ptr"),
        (torch.UntypedStorage, "data_ptr"),
        (torch.Tensor, "__dlpack__"),
    ):
        setattr(owner, name, _telling(getattr(owner, name)))


def _telling(method):
    @functools.wraps(method)
    def tell(self, *args, **kwargs):
        given = method(self, *args, **kwargs)
        if (
            self.device.type == "npu"
            and sys._getframe(1).f_globals.get("__name__") not in _HARMLESS
        ):
            storage = self if isinstance(self, torch.UntypedStorage) else self.untyped_storage()
            _C._give_out(_storage_address(storage), storage.nbytes())
        return given

    return tell
