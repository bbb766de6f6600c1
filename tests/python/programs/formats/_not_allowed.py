# SPDX-License-Identifier: Apache-2.0
import torch, torch_npu
assert torch.npu.config.allow_internal_format is False
x = torch.randn(2, 3, device='npu')
for _ in range(3):
    y = torch_npu.npu_format_cast(x, 29)
    assert torch_npu.get_npu_format(y) == 2 and torch.equal(x, y)
    y = torch_npu.npu_format_cast(x, 3)
    assert torch_npu.get_npu_format(y) == 0 and torch_npu.get_npu_format(x) == 2
    y = torch_npu.empty_with_format((2, 3), acl_format=29)
    assert torch_npu.get_npu_format(y) == 2
y = torch_npu.unsafe_empty_with_format((2, 3), acl_format=29, keep_format=True)
assert torch_npu.get_npu_format(y) == 29
torch.npu.set_option({'ALLOW_INTERNAL_FORMAT': 'enable'})
assert torch_npu.get_npu_format(torch_npu.npu_format_cast(x, 29)) == 29
