# SPDX-License-Identifier: Apache-2.0
"""What the tests of the ladder share: the same numbers on both sides, results compared by bits."""

import os

import pytest
import torch

# All of the host driver's kernels run, not only the fast ones: sums are then in another order than
# the CPU's. With asynchronous streams that is the default.
KERNELS = "all" if os.environ.get("NPU_HOST_ASYNC") == "1" else "fast"
OWN_ROUNDING = (os.environ.get("NPU_HOST_KERNELS") or KERNELS) == "all"


def npu(*shape, dtype=torch.float32, seed=0):
    """Random numbers, the same on both sides: (cpu, npu)."""
    generator = torch.Generator().manual_seed(seed)
    host = torch.randn(*shape, generator=generator).to(dtype)
    return host, host.to("npu")


def same(expected, got):
    assert got.device.type == "npu"
    assert got.dtype == expected.dtype
    assert got.shape == expected.shape
    a = got.cpu().resolve_conj().resolve_neg().contiguous()
    b = expected.resolve_conj().resolve_neg().contiguous()
    if OWN_ROUNDING:
        torch.testing.assert_close(a, b, equal_nan=True)
    else:
        assert torch.equal(a.reshape(-1).view(torch.uint8), b.reshape(-1).view(torch.uint8))


def both_raise(cpu, here):
    with pytest.raises(Exception) as expected:
        cpu()
    with pytest.raises(type(expected.value)):
        here()
