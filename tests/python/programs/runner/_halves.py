# SPDX-License-Identifier: Apache-2.0
import torch, torch_npu
for dtype in (torch.float16, torch.bfloat16):
    x = torch.tensor([1e-3, -0.25, 0.7, 3.0], dtype=dtype)
    y = x.npu()
    for number in (65536.0, 1e-5, 0.1, 2.0, 1 / 3, 70000, float("inf"), float("nan")):
        for fn in (lambda a: a * number, lambda a: a / number, lambda a: a.clone().mul_(number),
                   lambda a: a.clone().div_(number), lambda a: torch.div(a, number, rounding_mode="floor"),
                   lambda a: torch.div(a, number, rounding_mode="trunc"), lambda a: number * a,
                   lambda a: a + number, lambda a: a - number, lambda a: a > number):
            got, want = fn(y).cpu(), fn(x)
            assert got.dtype == want.dtype
            torch.testing.assert_close(got, want, rtol=0, atol=0, equal_nan=True, msg=f"{dtype} {number} {got} {want}")
print("done")
