# SPDX-License-Identifier: Apache-2.0
"""Operators of namespace npu as methods of Tensor."""

import torch


def _method(name: str):
    def call(self, *args, **kwargs):
        return getattr(torch.ops.npu, name)(self, *args, **kwargs)

    call.__name__ = name
    call.__qualname__ = f"Tensor.{name}"
    call.__doc__ = f"torch_npu.{name}(self, ...)"
    return call


def add_methods(names) -> None:
    """Gives Tensor a method for each operator; names that Tensor has are kept."""
    for name in names:
        if not hasattr(torch.Tensor, name):
            setattr(torch.Tensor, name, _method(name))
