# SPDX-License-Identifier: Apache-2.0
"""Rung 5: the CPU kernel works on copies, and only what it wrote goes back to the device."""

import pytest
from faulty import faulty_environment
from programs import program

WRITER = program(__file__, "_writer")

# A kernel writes one view of a storage; before it returns, the device writes a disjoint one.
DISJOINT = program(__file__, "_disjoint")


@pytest.mark.parametrize("disabled", ["", "copy"])
def test_a_written_view_leaves_the_rest_of_its_storage_alone(run_python, disabled):
    run_python(WRITER + DISJOINT, NPU_HOST_ACCESS="none", NPU_DISABLE_KIND=disabled)


def test_other_layouts_leave_the_rest_of_their_storage_alone(run_python):
    code = program(__file__, "_other_layouts_leave_the_rest_of_their_storage_alone")
    run_python(WRITER + code, NPU_HOST_ACCESS="none")


def test_streams_that_write_disjoint_views(run_python):
    code = program(__file__, "_streams_that_write_disjoint_views")
    run_python(WRITER + code, NPU_HOST_ACCESS="none")


def test_an_out_tensor_survives_a_kernel_that_refuses(run_python):
    code = program(__file__, "_an_out_tensor_survives_a_kernel_that_refuses")
    run_python(WRITER + code, NPU_HOST_ACCESS="none")


def test_an_out_tensor_that_grows(run_python):
    code = """
x = torch.arange(12.0, device="npu")
storage = torch.full((4,), 9.0, device="npu")
out = storage[2:2]
import warnings; warnings.simplefilter("ignore")
torch.fmax(x, x, out=out)
assert out.eq(x).all() and storage.untyped_storage().nbytes() == (2 + 12) * 4
assert storage[:2].eq(9).all(), storage
"""
    run_python(WRITER + code, NPU_HOST_ACCESS="none")


def test_an_argument_that_did_not_arrive_is_not_written_back(run_python):
    code = program(__file__, "_an_argument_that_did_not_arrive_is_not_written_back")
    variables = {"NPU_FAULTY_HOST_ACCESS": "none", "NPU_FAULT": "memory.copy_to_host:1"}
    run_python(code, **faulty_environment(), **variables)
