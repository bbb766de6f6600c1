# SPDX-License-Identifier: Apache-2.0
"""Moving, indexing, embeddings, products, pools and resizing on the driver's own kernels.

One line per overload: an expression that is computed on the CPU and on the device, and must have run
as a call of the driver there. All of it with NPU_HOST_KERNELS=all, in child processes.
"""

import pytest
import torch
from programs import program
from test_adapters import PREAMBLE

CASES = {
    "move": program(__file__, "_move"),
    "index": program(__file__, "_index"),
    "order": program(__file__, "_order"),
    "gemm": program(__file__, "_gemm"),
    "pool": program(__file__, "_pool"),
    "resize": program(__file__, "_resize"),
}

RUN = program(__file__, "_run")


@pytest.mark.parametrize("family", CASES)
def test_overloads_on_the_driver(family, run_python):
    code = PREAMBLE + f"CASES = {CASES[family]!r}\n" + RUN
    run_python(code, NPU_HOST_KERNELS="all")


ERRORS = program(__file__, "_errors")

RUN_ERRORS = """
failed = []
for line in ERRORS.strip().splitlines():
    try:
        raises_same(lambda: compute("cpu", line), lambda: compute("npu", line))
        assert torch.ones(3, device="npu").sum().item() == 3
    except Exception as e:
        failed.append(f"{line}\\n    {type(e).__name__}: {e}")
assert not failed, "\\n".join(failed)
"""


def test_bad_arguments_raise_as_on_the_cpu(run_python):
    helpers = RUN[: RUN.index("failed = []")]
    run_python(PREAMBLE + helpers + f"ERRORS = {ERRORS!r}\n" + RUN_ERRORS, NPU_HOST_KERNELS="all")


def test_histc_counts_integers(run_python):
    """PyTorch's CPU refuses them; GPUs count them, and libraries route tokens to experts with it."""
    run_python(
        PREAMBLE
        + """
a = torch.randint(0, 9, (200,))
for dtype in (torch.int32, torch.int64, torch.uint8, torch.int8, torch.int16):
    got = torch.histc(a.to(dtype).npu(), bins=8, min=0, max=7)
    want = torch.bincount(a, minlength=9)[:8].to(dtype)
    assert got.dtype == dtype and torch.equal(got.cpu(), want), (dtype, got, want)
out = torch.empty(3, dtype=torch.int32, device="npu")
assert torch.histc(a.int().npu(), 3, out=out) is out
assert out.tolist() == torch.histc(a.double(), 3).int().tolist()
"""
    )


ALPHA_AND_DEVICES = program(__file__, "_alpha_and_devices")


def test_alpha_zero_far_indices_and_powers(run_python):
    """Products with alpha 0 as the CPU has them, indices of another device, numbers to a power."""
    run_python(
        PREAMBLE + ALPHA_AND_DEVICES,
        NPU_HOST_KERNELS="all",
        NPU_HOST_DEVICES="2",
        NPU_HALF_PRODUCTS="cpu",  # else halves answer as float32 does
    )


@pytest.mark.parametrize("sizes", [(), (1,), (3, 3)])
def test_addr_in_place_never_resizes(sizes):
    for device in ("cpu", "npu"):
        x, ones = torch.ones(sizes, device=device), torch.ones(2, device=device)
        with pytest.raises(RuntimeError, match=r"2D tensor expected|size mismatch"):
            x.addr_(ones, ones)
        assert x.shape == sizes
    matrix = torch.ones(2, 2, device="npu")
    assert matrix.addr_(ones, ones, alpha=2).tolist() == [[3, 3], [3, 3]]
