# SPDX-License-Identifier: Apache-2.0
"""More elements than 32 bits count."""

import os

import pytest

CODE = """
import torch, torch_npu
n = 2**31 + 4099
x = torch.ones(n, dtype=torch.int8, device="npu")
x[2**31], x[-1] = 7, 5
y = x + x
assert [y[i].item() for i in (0, 2**31 - 1, 2**31, 2**31 + 1, -1)] == [2, 2, 14, 2, 10]
del y
x[1:].add_(1)
assert [x[i].item() for i in (0, 1, 2**31, -1)] == [1, 2, 8, 6]
# In rows: as a whole PyTorch would make an int64 copy of it first.
rows = x[: 2**31].view(2**13, 2**18)
assert [rows[i].sum().item() for i in (0, -1)] == [2 * 2**18 - 1, 2 * 2**18]
tail = x[2**31 - 5 :]
assert tail.sum().item() == 2 * tail.numel() + 6 + 4
assert torch.equal(tail.cpu(), x[2**31 - 5 :].clone().cpu())
"""


def free_bytes():
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


FULL = os.environ.get("OPENNPU_TEST_FULL") == "1"


@pytest.mark.slow
@pytest.mark.parametrize("kernels", ["fast", "all"] if FULL else ["fast"])
def test_more_than_two_to_the_31_elements(kernels, run_python):
    if free_bytes() < 16 << 30:
        pytest.skip("needs 16 GiB of free memory")
    run_python(CODE, timeout=900, NPU_HOST_KERNELS=kernels)
