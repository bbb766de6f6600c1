# SPDX-License-Identifier: Apache-2.0
import torch, torch_npu

before = torch.ops.guide_ops.calls()


def calls():
    global before
    now, last = torch.ops.guide_ops.calls(), before
    before = now
    return now - last


def same(found, expected, ours=1):
    assert found.device.type == "npu", found.device
    torch.testing.assert_close(found.cpu(), expected)
    assert calls() == ours, "the pack's function was called"


a, b = torch.rand(3, 4), torch.rand(3, 4)
x, y = a.npu(), b.npu()
# The guide's five functions by every form that reaches them: custom comes before built-in.
same(torch.add(x, y), a + b)
same(torch.add(x, y, alpha=2), a + 2 * b)
same(x + 3, a + 3)
same(torch.add(x, 3, alpha=2), a + 6)
same(x.clone().add_(y, alpha=3), a + 3 * b)
same(x.clone().add_(2), a + 2)
view = x.clone().t()
same(view.add_(y.t()), (a + b).t())
view = x.clone().t()
same(view.add_(1), (a + 1).t())
out = torch.empty(0, device="npu")
assert torch.add(x, y, out=out) is out
same(out, a + b)
strided = torch.empty(4, 3, device="npu").t()
same(torch.add(x, y, out=strided), a + b)
same(x[:, :1] + y, a[:, :1] + b)
try:
    torch.add(x, y, out=torch.empty(3, 4, dtype=torch.int32, device="npu"))
except RuntimeError as error:
    assert "expected dtype" in str(error) and "but got dtype" in str(error), error
else:
    raise AssertionError("a result of another dtype")
w = torch.rand(3, 4).npu().requires_grad_()
calls()
(w + y).sum().backward()
torch.testing.assert_close(w.grad.cpu(), torch.ones(3, 4))

# autograd: forward and backward by hand
w = (a * 12).npu().requires_grad_()
result = torch.nn.functional.relu6(w)
result.sum().backward()
torch.testing.assert_close(w.grad.cpu(), torch.ones(3, 4))

# custom: the guide's schema, which is not Ascend's
assert str(torch.ops.npu.npu_dtype_cast.default._schema) == (
    "npu::npu_dtype_cast(Tensor input, ScalarType dtype) -> Tensor")
torch.testing.assert_close(torch_npu.npu_dtype_cast(x, torch.int32).cpu(), a.int())
torch.testing.assert_close((x * 9).npu_dtype_cast(torch.int64).cpu(), (a * 9).long())

# kernels by name
found = [t.cpu() for t in torch.ops.guide_ops.commands(x, y)]
expected = [a / b, a.sum(1, keepdim=True), a.T @ b, a.clamp(0.25, 0.5), a.softmax(-1), a.T,
            torch.cat([a, b]), b * (1 - a * a), a.max(1)[0]]
assert len(found) == len(expected)
for i, (f, e) in enumerate(zip(found, expected)):
    torch.testing.assert_close(f, e, msg=lambda m: f"command {i}: {m}")
found = [t.cpu() for t in torch.ops.guide_ops.aclnn(x, y)]
expected = [a + 2 * b, a * 2, a @ b.T, a.sum(0), a.cumsum(1), torch.cat([a, b], 1), a.div(b, rounding_mode="floor"),
            a * b, torch.nn.functional.gelu(a), a * torch.sigmoid(1.702 * a)]
assert len(found) == len(expected)
for i, (f, e) in enumerate(zip(found, expected)):
    torch.testing.assert_close(f, e, msg=lambda m: f"aclnn {i}: {m}")
try:
    torch.ops.guide_ops.unknown(x)
except RuntimeError as error:
    assert "aclnnNoSuch or aclnnNoSuchGetWorkspaceSize not in" in str(error), error
    assert "ERR01004" in str(error), error
else:
    raise AssertionError("unknown")

# a kernel of the pack for the driver, by a kind of its own
torch.testing.assert_close(torch.ops.guide_ops.doubled(x).cpu(), a * 2)
try:
    torch.ops.guide_ops.doubled(x.double())
except NotImplementedError as error:
    assert "declines kind 'guide.double/1'" in str(error) and "dtype" in str(error), error
else:
    raise AssertionError("float64")
try:
    torch.ops.guide_ops.doubled(x[0, 0])
except RuntimeError as error:
    assert "doubled: a has no dimensions" in str(error) and "ERR01001 OPS invalid parameter" in str(error), error
else:
    raise AssertionError("no dimensions")
w = torch.rand(3).npu().requires_grad_()
torch.ops.guide_ops.doubled(w).sum().backward()
assert w.grad.tolist() == [2, 2, 2]

# seen by fake tensors, the compiler and the operator tools like a built-in
from torch._subclasses.fake_tensor import FakeTensorMode
with FakeTensorMode() as mode:
    assert torch.ops.guide_ops.doubled(mode.from_tensor(x)).shape == (3, 4)
compiled = torch.compile(lambda t: torch.ops.guide_ops.doubled(t) * 3, backend="aot_eager", fullgraph=True)
torch.testing.assert_close(compiled(x).cpu(), a * 6)
import op_tools
tool = op_tools.OpObserve()
with tool:
    torch.ops.guide_ops.doubled(x)
assert "guide_ops::doubled" in str(tool.counts()), tool.counts()
from torch_npu import _packs
(pack,) = _packs.ALL
assert pack.state == "loaded", pack.state
