# SPDX-License-Identifier: Apache-2.0
import sys
import torch, torch_npu
from torch_npu import _custom_ops

torch_npu._C._load_pack(sys.argv[1])
sys.path.insert(0, sys.argv[2])
import custom_ops
_custom_ops.add_methods(custom_ops.METHODS)


def same(found, expected):
    assert found.device.type == "npu", found.device
    torch.testing.assert_close(found.cpu(), expected, rtol=0, atol=0)


a, b = torch.arange(6.0), torch.ones(6)
x, y = a.npu(), b.npu()

# supported: the guide's five functions, by every form that reaches them
same(torch.add(x, y, alpha=2), a + 2 * b)
same(torch.add(x, 3, alpha=2), a + 6)
same(x.clone().add_(y, alpha=3), a + 3 * b)
same(x.clone().add_(2), a + 2)
out = torch.empty(0, device="npu")
assert torch.add(x, y, out=out) is out
same(out, a + b)
x.requires_grad_()
torch.add(x, y, alpha=4).sum().backward()
same(x.grad, torch.ones(6))

# autograd: forward and backward by hand
x = (a * 2).npu().requires_grad_()
result = torch.nn.functional.relu6(x)
same(result.detach(), (a * 2).clamp(0, 6))
(result * y).sum().backward()
same(x.grad, torch.ones(6))  # PyTorch's own is 0 where the result is cut off

# custom: function, method, in-place, lists and optional values
assert str(torch.ops.npu.npu_dtype_cast.default._schema) == (
    "npu::npu_dtype_cast(Tensor input, ScalarType dtype) -> Tensor"
)
same(torch_npu.npu_dtype_cast(y, torch.int32), b.int())
same(torch_npu.npu_dtype_cast(input=y, dtype=torch.int32), b.int())
same(torch.ops.npu.npu_dtype_cast(y, torch.int32), b.int())
same(y.npu_dtype_cast(torch.int64), b.long())
z = torch.zeros(6, dtype=torch.int32, device="npu")
assert z.npu_dtype_cast_(y) is z
same(z, b.int())
count, scaled = torch_npu.npu_count([y, z], scale=2.0)
assert count == 12
same(scaled, b * 2)
assert torch_npu.npu_count([y, z], "dims")[0] == 2
try:
    torch_npu.npu_dtype_cast(b, torch.int32)
except NotImplementedError as error:
    assert "Could not run 'npu::npu_dtype_cast' with arguments from the 'CPU' backend" in str(error)
else:
    raise AssertionError("ran on the CPU")

# custom_autograd
torch.manual_seed(0)
image, weight, bias = torch.randn(2, 3, 8, 8), torch.randn(4, 3, 3, 3), torch.randn(4)
expected = [t.clone().requires_grad_() for t in (image, weight, bias)]
torch.nn.functional.conv2d(*expected, stride=2, padding=1).square().sum().backward()
found = [t.npu().requires_grad_() for t in (image, weight, bias)]
result = torch_npu.npu_convolution(*found, [2, 2], [1, 1], [1, 1], 1)
result.square().sum().backward()
for f, e in zip(found, expected):
    torch.testing.assert_close(f.grad.cpu(), e.grad)
with torch.inference_mode():
    torch_npu.npu_convolution(*found, [2, 2], [1, 1], [1, 1], 1)
