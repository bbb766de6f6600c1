# SPDX-License-Identifier: Apache-2.0
"""Python side of the pack: shapes for fake tensors, a gradient."""

import torch


@torch.library.register_fake("guide_ops::doubled")
def _(a):
    return torch.empty_like(a)


def _backward(ctx, grad):
    return grad * 2


torch.library.register_autograd("guide_ops::doubled", _backward)
