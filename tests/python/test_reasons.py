# SPDX-License-Identifier: Apache-2.0
"""Why an operator went to the CPU: torch.npu.fallback_report() gives the true reason.

With all kernels in use, so that the adapter decides, not a preference of the driver; and on a driver
that is not the host's, whose own way the CPU kernels are.
"""

from faulty import faulty_environment
from programs import program

SCRIPT = program(__file__, "_script")


def test_the_report_says_why(run_python):
    run_python(SCRIPT, NPU_HOST_KERNELS="all", **faulty_environment())


MIXED = program(__file__, "_mixed")


def test_mixed_layer_norm_reaches_the_driver(run_python):
    """Half inputs with float32 parameters: the kind takes them, forward and backward."""
    run_python(MIXED, NPU_HOST_KERNELS="all")
