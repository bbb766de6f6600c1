# SPDX-License-Identifier: Apache-2.0
"""Broadcasting, several outputs, casts, masks, in-place changes, views, NaN and infinity."""
def body(x, row, state, mask):
    y = torch.where(mask, x * row + 1, x / 3)
    z = (y.clamp(-2, 2) - row).abs()
    state.add_(z, alpha=2).mul_(0.5)
    return torch.maximum(z, state) + y, z, (y > z).to(x.dtype) * state, (x.t() + 1).neg()

for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.float64):
    def make(backend):
        x = torch.randn(33, 70, dtype=torch.float64)
        x[0, :4] = torch.tensor([float("nan"), float("inf"), -float("inf"), -0.0])
        x, row = x.to(dtype).npu(), torch.randn(70).to(dtype).npu()
        state, mask = torch.randn(33, 70).to(dtype).npu(), (torch.randn(33, 70) > 0).npu()
        function = torch.compile(body, backend=backend)
        return lambda: (*function(x, row, state, mask), state)
    compare(make, fused=6)

def whole(x, y):
    z = (x + y) * x - 3
    return z, torch.maximum(z, y) ^ x, (z > y) | (x == y), z.float() * 0.5

for dtype in (torch.int8, torch.int32, torch.int64, torch.uint8):
    def make(backend):
        x, y = (torch.randint(0, 100, (19, 5)).to(dtype).npu() for _ in range(2))
        function = torch.compile(whole, backend=backend)
        return lambda: function(x, y)
    compare(make, fused=4)
