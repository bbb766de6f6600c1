# SPDX-License-Identifier: Apache-2.0
import math
from fractions import Fraction
import torch, torch_npu
from torch_npu import _C

A = Fraction(-3, 4)

def weight(x):
    x = abs(x)
    if x < 1:
        return (A + 2) * x**3 - (A + 3) * x**2 + 1
    return A * (x**3 - 5 * x**2 + 8 * x - 4) if x < 2 else Fraction(0)

def rounded(x):
    return Fraction(float(x))

def taps(size, wanted, align):
    # A place is a float64: the ratio is rounded, and the place once.
    found = []
    for i in range(wanted):
        if align:
            place = rounded(rounded(Fraction(size - 1, wanted - 1)) * i)
        else:
            place = rounded(rounded(Fraction(size, wanted)) * (i + Fraction(1, 2)) - Fraction(1, 2))
        low = math.floor(place)
        found.append([(min(max(low + k, 0), size - 1), weight(place - low - k)) for k in range(-1, 3)])
    return found

def off(got, terms):
    # In roundoffs of the sum of the terms' magnitudes.
    large = sum(abs(t) for t in terms)
    return float(abs(Fraction(got) - sum(terms)) / large * 2**53) if large else abs(got)

torch.manual_seed(0)
worst = 0
for (h, w), (oh, ow), align in [
    ((4, 4), (5, 5), False), ((4, 5), (3, 4), False), ((6, 5), (9, 14), True), ((7, 11), (20, 9), False),
]:
    x = torch.randn(1, 1, h, w, dtype=torch.float64)
    seed = torch.randn(1, 1, oh, ow, dtype=torch.float64)
    leaf = x.npu().requires_grad_()
    got = torch.nn.functional.interpolate(leaf, (oh, ow), mode="bicubic", align_corners=align)
    got.backward(seed.npu())
    out, grad = got.detach().cpu()[0, 0].tolist(), leaf.grad.cpu()[0, 0].tolist()
    x, seed = x[0, 0].tolist(), seed[0, 0].tolist()
    back = {}
    for i, rows in enumerate(taps(h, oh, align)):
        for j, columns in enumerate(taps(w, ow, align)):
            reads = [(y, z, a * b) for y, a in rows for z, b in columns]
            worst = max(worst, off(out[i][j], [Fraction(x[y][z]) * c for y, z, c in reads]))
            for y, z, c in reads:
                back.setdefault((y, z), []).append(Fraction(seed[i][j]) * c)
    for (y, z), terms in back.items():
        worst = max(worst, off(grad[y][z], terms))
calls = _C._native_calls()
assert any(row[1] for row in calls["aten::upsample_bicubic2d"]), calls
assert any(row[1] for row in calls["aten::upsample_bicubic2d_backward"]), calls
print(worst)
