# SPDX-License-Identifier: Apache-2.0
"""Pinned, non-blocking copies never wait for the stream, whatever has to be cast or gathered."""

from gpu import pins_for_cuda
from programs import program

pytestmark = pins_for_cuda

# Work on the stream takes a third of a second; every copy below must return long before.
QUEUED = """
import time, torch, torch_npu
def pinned(x):
    out = torch.empty_strided(x.size(), x.stride(), dtype=x.dtype, pin_memory=True)
    return out.copy_(x)
def with_gaps(x):
    wide = torch.full((*x.shape, 3), 77, dtype=x.dtype, pin_memory=True)
    wide[..., 1] = x
    return wide[..., 1]
base = torch.arange(24.).reshape(4, 6)
plain = lambda x: x
hosts = [pinned, with_gaps, lambda x: pinned(x.t()).t(), lambda x: pinned(x)[:, :1],
         lambda x: pinned(x)[:1]]
npus = [plain, lambda x: x.t().contiguous().t(),
        lambda x: torch.zeros(4, 6, 2, dtype=x.dtype, device="npu")[..., 1].copy_(x)]
dtypes = [(torch.float32, torch.float16), (torch.float16, torch.float32),
          (torch.float32, torch.float32), (torch.int64, torch.int32),
          (torch.complex64, torch.complex64), (torch.float32, torch.bool)]
busy = torch.zeros(8, device="npu")
slow, wrong = [], []
def check(what, copy, got, expected):
    busy.fill_(1)                       # the queue is not empty
    start = time.perf_counter()
    copy()
    took = time.perf_counter() - start
    torch.npu.synchronize()
    if took > DELAY / 2:
        slow.append((what, took))
    if not torch.equal(got().cpu(), expected):
        wrong.append(what)
"""

TO_DEVICE = program(__file__, "_to_device")

TO_HOST = program(__file__, "_to_host")


def test_to_the_device(run_python):
    code = QUEUED.replace("DELAY", "0.05") + TO_DEVICE
    run_python(code, NPU_HOST_ASYNC="1", NPU_HOST_DELAY_US="50000")


def test_to_the_host(run_python):
    code = QUEUED.replace("DELAY", "0.02") + TO_HOST
    run_python(code, NPU_HOST_ASYNC="1", NPU_HOST_DELAY_US="20000")


def test_where_host_code_cannot_read_device_memory(run_python):
    code = QUEUED.replace("DELAY", "0.02") + TO_DEVICE + TO_HOST
    run_python(code, NPU_HOST_ASYNC="1", NPU_HOST_DELAY_US="20000", NPU_HOST_ACCESS="none")


def test_without_a_copy_kernel_values_are_right(run_python):
    code = QUEUED.replace("DELAY", "1e9") + TO_DEVICE + TO_HOST
    for access in ("none", "coherent"):
        run_python(code, NPU_DISABLE_KIND="copy", NPU_HOST_ACCESS=access)
