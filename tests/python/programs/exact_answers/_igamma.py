# SPDX-License-Identifier: Apache-2.0
import torch, torch_npu
# a, x and the lower incomplete gamma function, summed with 40 digits.
ROWS = [
    (110000.0, 110000.0, 0.500400952098158878),
    (110000.0, 110500.0, 0.934002760818113735),
    (110000.0, 109000.0, 0.00125019965574377561),
    (200000.0, 201000.0, 0.987228728290627781),
    (200000.0, 198000.0, 3.62209517705604501e-6),
    (100001.0, 97000.0, 4.59971917489617349e-22),
]
a, x, want = torch.tensor(ROWS, dtype=torch.float64).unbind(1)
got = torch.igamma(a.npu(), x.npu()).cpu()
upper = torch.igammac(a.npu(), x.npu()).cpu()
assert (abs(got - want) <= 4 * 2.0**-53 * want).all(), got
assert (abs(upper - (1 - want)) <= 2.0**-50).all(), upper
# Where a sum would never end: half, with a correction that float32 does not see.
huge = torch.tensor([1e20, 1e30, 3e38]).npu()
assert torch.igamma(huge, huge).tolist() == [0.5] * 3
assert torch.igamma(huge, huge / 2).tolist() == [0.0] * 3
assert torch.igammac(huge, torch.full_like(huge, 501)).tolist() == [1.0] * 3
