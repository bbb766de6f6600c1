# SPDX-License-Identifier: Apache-2.0
"""The API guide's AddKernelNpu.cpp in a pack: built, found by itself, computes right, seen everywhere."""

import hashlib
import json
import re
from pathlib import Path

from programs import program

RUN = program(__file__, "_run")


def test_computes_right(guide):
    done = guide.run(RUN)
    assert done.returncode == 0, done.stderr
    assert "left out" not in done.stderr and "Overriding" not in done.stderr, done.stderr


QUEUED = """
import torch, torch_npu

x = torch.ones(1000).npu()
for _ in range(20):
    x = x * 2
y = torch.ops.guide_ops.doubled(x) + 1
assert (y.cpu() == 2.0**21 + 1).all(), y
"""


def test_a_kernel_waits_for_what_it_reads(guide):
    """The kernel is a loop; the device is asynchronous and late."""
    done = guide.run(QUEUED, NPU_HOST_ASYNC="1", NPU_HOST_DELAY_US="2000")
    assert done.returncode == 0, done.stderr


# Of the guide's three listings of AddKernelNpu.cpp ("5. 分别实现适配主体函数"), without white space.
PRINTED = "60f78b465e9e9c5d9207a9aa0ca54f25287caf96757a480f9a2cf634b9ba5072"
INCLUDES = (
    "<ATen/Tensor.h>", "<c10/util/SmallVector.h>", '"torch_npu/csrc/core/npu/register/OptionsManager.h"',
    '"torch_npu/csrc/framework/utils/CalcuOpUtil.h"', '"torch_npu/csrc/framework/utils/OpAdapter.h"',
    '"torch_npu/csrc/aten/NPUNativeFunctions.h"',
)  # fmt: skip


def test_the_printed_functions_are_the_guides():
    """AddKernelNpu.inc is what the guide prints, word for word, and is compiled with the guide's includes."""
    sources = Path(__file__).with_name("guide") / "csrc"
    text = (sources / "AddKernelNpu.inc").read_text(encoding="utf-8")
    assert hashlib.sha256("".join(text.split()).encode()).hexdigest() == PRINTED
    around = (sources / "AddKernelNpu.cpp").read_text(encoding="utf-8")
    assert re.findall(r"#include (.+)", around) == [
        *sorted(INCLUDES[:2]), *sorted(INCLUDES[2:]), '"AddKernelNpu.inc"',
    ]  # fmt: skip


def test_wheel_is_found_by_itself(guide_site):
    (info,) = guide_site.glob("*.dist-info")
    assert (info / "entry_points.txt").read_text() == "[opennpu.packs]\nguide_ops = guide_ops\n"
    about = json.loads((guide_site / "guide_ops/opennpu_pack.json").read_text())
    assert about["kind"] == "cpp" and about["kernels"] and about["methods"] == ["npu_dtype_cast"]
    assert len(about["operators"]) == 13
