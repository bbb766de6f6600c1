# SPDX-License-Identifier: Apache-2.0
"""True and False as numbers: what PyTorch refuses is refused on npu, what it computes is computed."""

import pytest
import torch

pytestmark = pytest.mark.modes

DTYPES = [torch.float32, torch.float16, torch.float64, torch.int64]


def refused(call, words):
    with pytest.raises(RuntimeError, match=words):
        call("cpu")
    with pytest.raises(RuntimeError, match=words):
        call("npu")


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("size", [3, 1 << 14])
def test_they_are_not_subtracted(dtype, size):
    """Neither as a number of Python nor as a 0-dim tensor of the CPU, alone or for lists."""
    ones = lambda device: torch.ones(size, dtype=dtype, device=device)  # noqa: E731
    words = "with a bool tensor is not supported"
    refused(lambda device: ones(device) - True, words)
    refused(lambda device: ones(device) - torch.tensor(False), words)
    refused(lambda device: ones(device).sub_(True), words)
    refused(lambda device: True - ones(device), words)
    refused(lambda device: torch._foreach_sub([ones(device)] * 2, True), words)
    refused(lambda device: torch._foreach_sub_([ones(device)], [True]), words)
    assert (ones("npu") + True).eq(2).all()
    assert all(t.eq(2).all() for t in torch._foreach_add([ones("npu")] * 2, True))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_they_are_no_alpha(dtype):
    ones = lambda device: torch.ones(3, dtype=dtype, device=device)  # noqa: E731
    words = "Boolean alpha only supported for Boolean results"
    for name in ("add", "sub"):
        one, lists = getattr(torch, name), getattr(torch, f"_foreach_{name}")
        refused(lambda device, f=one: f(ones(device), ones(device), alpha=True), words)
        refused(lambda device, f=lists: f([ones(device)], [ones(device)], alpha=True), words)


POWERS = """
import torch, torch_npu
for x in (torch.tensor([True, False]), torch.tensor([[False], [True]])):
    for function in (lambda t: t**True, lambda t: t**False, lambda t: t**2, lambda t: t**0.5,
                     lambda t: t.square(), lambda t: t * True, lambda t: t.isnan(), lambda t: t.clamp(0)):
        wanted, got = function(x), function(x.npu())
        assert got.dtype == wanted.dtype and torch.equal(got.cpu(), wanted), (wanted, got)
"""


@pytest.mark.parametrize("kernels", ["fast", "all"])
def test_powers_of_truth_values(run_python, kernels):
    run_python(POWERS, NPU_HOST_KERNELS=kernels)
