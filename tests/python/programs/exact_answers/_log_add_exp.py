# SPDX-License-Identifier: Apache-2.0
import math, torch, torch_npu
inf, nan = math.inf, math.nan
x = torch.tensor([complex(inf, inf), complex(-inf, inf), complex(1, nan)])
y = torch.tensor([complex(-inf, nan), complex(-inf, -inf), complex(5, 0)])
got = torch.logaddexp(x.npu(), y.npu()).cpu()
want = torch.logaddexp(x, y)
torch.testing.assert_close(got, want, equal_nan=True)
# Where 1 + exp(low - high) is near 1, small parts stay.
x = torch.tensor([complex(0, -0.001), complex(0, 0.001)])
y = torch.tensor([complex(-3.1415927, -1.5707964), complex(-3.141582, -0.001)])
exact = torch.logaddexp(x.to(torch.complex128), y.to(torch.complex128))
off = (torch.logaddexp(x.npu(), y.npu()).cpu() - exact) / exact.abs()
assert off.abs().max() < 4e-7, off
