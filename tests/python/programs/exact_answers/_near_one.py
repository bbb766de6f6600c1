# SPDX-License-Identifier: Apache-2.0
from decimal import Decimal, getcontext
import torch, torch_npu
getcontext().prec = 50
rows = [[4.7523, -6.8127, -2.4511], [9.0, -1.0, 0.5], [30.0, 0.0, -3.0]]
for dtype, roundoff in ((torch.float64, Decimal(2) ** -53), (torch.float32, Decimal(2) ** -24)):
    x = torch.tensor(rows, dtype=dtype)
    y = x.npu().requires_grad_()
    target = torch.zeros(3, dtype=torch.int64).npu()
    losses = torch.nn.functional.cross_entropy(y, target, reduction="none")
    losses.sum().backward()
    for row, loss, grads in zip(x.tolist(), losses.tolist(), y.grad.cpu().tolist()):
        terms = [Decimal(v).exp() for v in row]
        exact = -(terms[0] / sum(terms)).ln()
        assert abs(Decimal(loss) - exact) <= 2 * roundoff * exact + Decimal(2) ** -52, (row, loss, exact)
        # The kind keeps the row's logarithm in the dtype; p can be no better than that.
        allowed = (1 + sum(terms).ln()) * roundoff
        for i, (term, grad) in enumerate(zip(terms, grads)):
            exact = term / sum(terms) - (i == 0)
            assert abs(Decimal(grad) - exact) <= allowed, (dtype, row, i, grad, exact)
