# SPDX-License-Identifier: Apache-2.0
"""Bad input: CPU's exception, a message no less clear, and a device that goes on."""

import json
import os
import re
from pathlib import Path

import bad_input
import interpreter
import pytest
import torch

_outcomes = {}


def outcomes(kernels: str) -> dict:
    """All cases in one process, which they must not bring down."""
    if kernels not in _outcomes:
        done = interpreter.run(
            [str(Path(bad_input.__file__))],
            env={**os.environ, "NPU_HOST_KERNELS": kernels, "NPU_FALLBACK": "silent"},
            timeout=900,
        )
        assert done.returncode == 0, done.stderr
        _outcomes[kernels] = json.loads(done.stdout.splitlines()[-1])
    return _outcomes[kernels]


@pytest.mark.parametrize("kernels", ["fast", "all"])
@pytest.mark.parametrize("name", list(bad_input.CASES))
def test_as_on_cpu(name, kernels):
    cpu, npu = outcomes(kernels)[name]["cpu"], outcomes(kernels)[name]["npu"]
    says = bad_input.CASES[name][1]
    assert cpu["type"] is not None and re.search(says, cpu["text"]), cpu
    assert npu["type"] == cpu["type"], npu["text"]
    assert re.search(says, npu["text"]), f"cpu: {cpu['text']}\nnpu: {npu['text']}"
    assert "INTERNAL ASSERT" not in npu["text"] and npu["usable"]


# Mixed devices have no CPU to compare with.
MIXED = "Expected all tensors to be on the same device"


@pytest.mark.parametrize(
    "call",
    [
        lambda x, c: x + c,
        lambda x, c: c + x,
        lambda x, c: x @ c,
        lambda x, c: c.mm(x),
        lambda x, c: x.add_(c),
        lambda x, c: torch.cat([x, c]),
        lambda x, c: torch.where(x > 0, x, c),
        lambda x, c: x.index_select(0, c[0].long()),
        lambda x, c: x.gather(0, c.long()),
        lambda x, c: torch.nn.functional.linear(x, c),
        lambda x, c: torch.nn.functional.conv2d(x[None, None], c[None, None]),
        lambda x, c: torch.nn.functional.embedding(c.long(), x),
        lambda x, c: torch.nn.functional.layer_norm(x, (3,), c[0]),
        lambda x, c: torch.nn.functional.cross_entropy(x, c[0].long()),
        lambda x, c: torch.add(x, x, out=c),
        lambda x, c: torch.stack([x, c]),
        lambda x, c: torch._foreach_add([x], [c]),
    ],
)
def test_mixed_devices(call):
    x, c = torch.ones(3, 3, device="npu"), torch.ones(3, 3)
    with pytest.raises(RuntimeError, match=r"same device|[Ee]xpected .*device|npu"):
        call(x, c)
    assert (x + 1).sum().item() == 18


def test_mixed_devices_text():
    with pytest.raises(RuntimeError, match=MIXED):
        torch.add(torch.ones(2), torch.ones(2, device="npu"))


def test_two_npu_devices(run_python):
    run_python(
        "import torch, torch_npu\n"
        "a, b = torch.ones(2, device='npu:0'), torch.ones(2, device='npu:1')\n"
        "for call in (lambda: a + b, lambda: torch.dot(a, b), lambda: torch.cat([a, b])):\n"
        "    try:\n        call()\n"
        "    except RuntimeError as e:\n        assert 'npu:0' in str(e) and 'npu:1' in str(e), e\n"
        "    else:\n        raise SystemExit('no error')\n"
        "assert (a + 1).sum().item() == 4 == (b + 1).sum().item()\n",
        NPU_HOST_DEVICES="2",
    )


def test_out_of_memory_leaves_the_device_usable():
    total = torch.npu.get_device_properties(0).total_memory
    with pytest.raises(torch.OutOfMemoryError, match="NPU out of memory"):
        torch.empty(total + 1, dtype=torch.uint8, device="npu")
    assert torch.ones(3, device="npu").sum().item() == 3
