# SPDX-License-Identifier: Apache-2.0
"""How exact products have to be: PyTorch's switches and npu's own reach the driver in math_mode, and a recorded
graph does not outlive a change of them. The discrete driver asks for every product as a frame."""

from faulty import discrete_environment
from programs import program

CODE = program(__file__, "_code")


def test_switches_reach_the_driver_and_end_recordings(run_python):
    run_python(CODE, NPU_HOST_KERNELS="all", NPU_PROFILE="none")


def test_a_driver_with_private_memory_gets_them_too(run_python):
    head, _, _ = CODE.partition("x = torch.ones(4, 4).npu()\ncompiled")
    run_python(head, **discrete_environment())
