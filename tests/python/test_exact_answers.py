# SPDX-License-Identifier: Apache-2.0
"""Answers in float64 that the CPU's cannot judge, against rational numbers.

The OpInfo sweep's reference is the CPU in float64. Where the CPU itself loses digits there, and
expected.yaml says so, this says that the host driver's kernel does not.
"""

import pytest
from programs import program

pytestmark = pytest.mark.machines

BICUBIC = program(__file__, "_bicubic")


def test_bicubic_weights_do_not_cancel(run_python):
    worst = float(run_python(BICUBIC, NPU_HOST_KERNELS="all").stdout)
    assert worst < 8


IGAMMA = program(__file__, "_igamma")


def test_incomplete_gamma_of_large_numbers(run_python):
    run_python(IGAMMA, NPU_HOST_KERNELS="all")


NEAR_ONE = program(__file__, "_near_one")


def test_gradient_of_a_sure_guess(run_python):
    run_python(NEAR_ONE, NPU_HOST_KERNELS="all")


LOG_ADD_EXP = program(__file__, "_log_add_exp")


def test_complex_logaddexp(run_python):
    run_python(LOG_ADD_EXP, NPU_HOST_KERNELS="all")


FLAT = program(__file__, "_flat")


def test_gradient_beyond_a_bicubic_border(run_python):
    """It is zero there, but for rounding: float64's is the CPU's, narrower ones are summed wider."""
    run_python(FLAT, NPU_HOST_KERNELS="all")
