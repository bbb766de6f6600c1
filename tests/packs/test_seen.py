# SPDX-License-Identifier: Apache-2.0
"""Operators of a pack are seen like built-in ones: op_tools, fallback reports, fake tensors, graph mode."""


def said(site, code: str) -> str:
    done = site.run("import torch, torch_npu\nx = torch.ones(3).npu()\n" + code)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def test_by_op_tools(guide):
    text = said(
        guide,
        """
import op_tools
for kind in (op_tools.OpTimeMeasure, op_tools.OpAutoCompare):
    tool = kind()
    tool.start()
    torch.ops.guide_ops.doubled(x)
    y = x + x
    tool.stop()
""",
    )
    timed, _, compared = text.partition("OpAutoCompare")
    assert "guide_ops::doubled" in timed and "guide_ops::doubled" in compared
    # add is the pack's: judged against the CPU's, and right.
    assert "aten::add.Tensor" in compared and "0 error" in compared


def test_by_the_fallback_report(guide):
    """What a pack brings runs on npu; what it leaves to the CPU is reported."""
    text = said(
        guide,
        """
torch.ops.guide_ops.doubled(x)
x + x
torch.nn.functional.multi_margin_loss(x[None], torch.zeros(1, dtype=torch.int64).npu())
report = str(torch.npu.fallback_report())
assert "guide_ops" not in report and "aten::add" not in report, report
print("multi_margin_loss" in report, torch_npu._C._pack_calls()["guide_ops::doubled"])
""",
    )
    assert "True 1" in text


def test_by_fake_tensors(guide):
    text = said(
        guide,
        """
from torch._subclasses.fake_tensor import FakeTensorMode
with FakeTensorMode() as mode:
    y = torch.ops.guide_ops.doubled(mode.from_tensor(x))
    print(type(y).__name__, tuple(y.shape), y.device.type)
""",
    )
    assert "FakeTensor (3,) npu" in text


def test_by_graph_mode(guide):
    text = said(
        guide,
        """
import torchair
config = torchair.CompilerConfig()
backend = torchair.get_npu_backend(compiler_config=config)
f = torch.compile(lambda a: torch.ops.guide_ops.doubled(a.relu()) + 1, backend=backend, fullgraph=True)
print([f(x * i).tolist() for i in (1, 2, 3)])
a = x.clone().requires_grad_()
f(a).sum().backward()
print(a.grad.tolist())
print(backend.explain(lambda a: torch.ops.guide_ops.doubled(a))(x))
""",
    )
    assert "[[3.0, 3.0, 3.0], [5.0, 5.0, 5.0], [7.0, 7.0, 7.0]]" in text
    assert "[2.0, 2.0, 2.0]" in text and "guide_ops.doubled.default" in text
