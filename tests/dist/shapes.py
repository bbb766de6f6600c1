# SPDX-License-Identifier: Apache-2.0
"""Calls of operators whose results must have the sizes and dtypes that fake tensors say."""

import torch
from torch._subclasses.fake_tensor import FakeTensorMode


def shape(t):
    return None if t is None else (t.shape, t.dtype, t.device.type)


def checked(operator, *args, **kwargs) -> list:
    """The operator's results; those of fake tensors are compared with them."""
    found = operator(*args, **kwargs)
    found = list(found) if isinstance(found, (list, tuple)) else [found]
    with FakeTensorMode() as mode:

        def fake(value):
            return mode.from_tensor(value) if isinstance(value, torch.Tensor) else value

        traced = operator(*map(fake, args), **{k: fake(v) for k, v in kwargs.items()})
    traced = list(traced) if isinstance(traced, (list, tuple)) else [traced]
    assert list(map(shape, traced)) == list(map(shape, found)), operator
    return found
