# SPDX-License-Identifier: Apache-2.0
"""Error codes: the line torch_npu appends, for every family, and its switches."""

import os
import re

import pytest
import torch
import torch_npu
from child import run_child

LINE = (
    r"\[ERROR\] \d{4}-\d\d-\d\d-\d\d:\d\d:\d\d "
    r"\(PID:(?P<pid>\d+), Device:(?P<device>-?\d+), RankID:(?P<rank>-?\d+)\) "
    r"ERR(?P<code>\d{5}) (?P<text>.*)$"
)

MODULES = {0: "PTA", 1: "OPS", 2: "DIST", 3: "GRAPH", 4: "PROF"}
CODES = {
    0: "success",
    1: "invalid parameter",
    2: "invalid type",
    3: "invalid value",
    4: "invalid pointer",
    5: "internal error",
    6: "memory error",
    7: "feature not supported",
    8: "resource not found",
    9: "resource unavailable",
    10: "system call failed",
    11: "timeout error",
    12: "permission error",
    100: "call acl api failed",
    200: "call hccl api failed",
    300: "call ge api failed",
}


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("code", CODES)
def test_every_family(module, code):
    line = torch_npu._C._error_line(module, code)
    assert line.startswith("\n")
    found = re.match(LINE, line[1:])
    assert found, line
    assert found["code"] == f"{module:02}{code:03}"
    assert found["text"] == f"{MODULES[module]} {CODES[code]}"
    assert int(found["pid"]) == os.getpid()


def test_device_and_rank():
    code = """
        import re, torch, torch_npu
        print(torch_npu._C._error_line(1, 7).strip())
        torch.npu.set_device(1)
        torch.ones(1, device="npu")
        print(torch_npu._C._error_line(1, 7).strip())
        """
    before, after = run_child(code, NPU_HOST_DEVICES="2", RANK="5").splitlines()
    assert re.match(LINE, before)["device"] == "-1"
    assert re.match(LINE, after)["device"] == "1"
    assert re.match(LINE, after)["rank"] == "5"


def test_compact_output_drops_the_line():
    out = run_child(
        """
        import torch, torch_npu
        assert torch_npu._C._error_line(1, 7) == ""
        try:
            torch.npu.set_device(99)
        except RuntimeError as e:
            print(e)
        """,
        TORCH_NPU_COMPACT_ERROR_OUTPUT="1",
    )
    assert "Invalid device ID" in out and "ERR" not in out


def test_uncaught_error_ends_with_the_line():
    with pytest.raises(RuntimeError) as caught:
        torch.npu.set_device(99)
    assert re.match(LINE, str(caught.value).splitlines()[-1])


def test_bad_switch_is_named():
    run_child(
        """
        import torch, torch_npu
        try:
            torch.ones(1, device="npu")
        except ValueError as e:
            assert "TORCH_NPU_COMPACT_ERROR_OUTPUT" in str(e) and "yes" in str(e), e
        else:
            raise SystemExit("no error")
        """,
        TORCH_NPU_COMPACT_ERROR_OUTPUT="yes",
    )


@pytest.mark.parametrize(
    "call",
    [
        lambda x: torch.div(x, 2, rounding_mode="test"),
        lambda x: x.div_(x, rounding_mode="test"),
        lambda x: torch.div(x, x, rounding_mode="test", out=torch.empty_like(x)),
    ],
    ids=["number", "in place", "out"],
)
def test_a_rounding_mode_that_does_not_exist(call):
    with pytest.raises(RuntimeError, match="to be one of None, 'trunc', or 'floor'") as caught:
        call(torch.ones(3, device="npu"))
    assert str(caught.value).splitlines()[-1].endswith("ERR01001 OPS invalid parameter")
