# SPDX-License-Identifier: Apache-2.0
"""The process ends well, whenever; CPU-only programs do not notice the plugin."""

import pytest
import torch_npu  # noqa: F401
from child import run_child, start_child
from gpu import GPU, starts_threads
from programs import program

END_AFTER_BACKWARD = """
import torch, torch_npu
x = torch.ones(8, device="npu", requires_grad=True)
(x * x).sum().backward()
"""


@pytest.mark.parametrize("devices", ["1", "8"])
def test_exit_right_after_first_backward(devices):
    # Autograd's threads and the interpreter's end: a race that aborted one run in two.
    for attempt in range(5):
        children = [
            start_child(END_AFTER_BACKWARD, exact=attempt == 0, NPU_HOST_DEVICES=devices)
            for _ in range(3)
        ]
        for child in children:
            _, err = child.communicate(timeout=180)
            assert (child.returncode, err) == (0, "")


def test_exit_after_a_backward_elsewhere_came_first():
    # Where PyTorch sees a GPU, that backward starts autograd threads that are not the plugin's.
    code = "import torch; torch.ones(1, requires_grad=True).sum().backward()" + END_AFTER_BACKWARD
    for _ in range(5 if GPU else 1):
        for child in [start_child(code) for _ in range(3)]:
            _, err = child.communicate(timeout=180)
            assert (child.returncode, err) == (0, "")


def test_exit_with_work_still_queued():
    run_child(
        """
        import torch, torch_npu
        x = torch.ones(1 << 16, device="npu")
        for _ in range(50):
            x.fill_(2)
        """,
        NPU_HOST_ASYNC="1",
        NPU_HOST_DELAY_US="2000",
    )


def test_exit_with_tensors_streams_and_events_alive():
    run_child(
        """
        import torch, torch_npu
        keep = [torch.ones(4, device="npu"), torch.Stream("npu"), torch.Event("npu")]
        keep[2].record(keep[1])
        keep.append(torch.ones(4).pin_memory())
        torch.keep = keep
        """
    )


def test_backward_after_the_last_act_is_an_error_not_a_hang():
    out = run_child(program(__file__, "_backward_after_the_last_act_is_an_error_not_a_hang"))
    assert out == "error\n"


@starts_threads
def test_cpu_backward_starts_no_threads():
    run_child(
        """
        import os, torch, torch_npu
        torch.set_num_threads(1)
        before = len(os.listdir("/proc/self/task"))
        torch.ones(4, requires_grad=True).sum().backward()
        assert len(os.listdir("/proc/self/task")) == before
        """,
        NPU_HOST_DEVICES="8",
    )


def test_npu_backward_after_cpu_backward():
    run_child(
        """
        import torch, torch_npu
        torch.ones(4, requires_grad=True).sum().backward()
        for i in range(torch.npu.device_count()):
            x = torch.ones(4, device=f"npu:{i}", requires_grad=True)
            (x * 3).sum().backward()
            assert x.grad.tolist() == [3.0] * 4
        """,
        NPU_HOST_DEVICES="8",
    )


def test_backward_across_devices():
    run_child(
        """
        import torch, torch_npu
        a = torch.ones(4, device="npu:0", requires_grad=True)
        b = torch.ones(4, device="npu:3", requires_grad=True)
        ((a * 2).to("npu:3") * b).sum().to("cpu").backward()
        assert a.grad.device.index == 0 and a.grad.tolist() == [2.0] * 4
        assert b.grad.device.index == 3 and b.grad.tolist() == [2.0] * 4
        """,
        NPU_HOST_DEVICES="4",
    )
