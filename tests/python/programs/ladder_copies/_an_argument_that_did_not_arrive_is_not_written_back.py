# SPDX-License-Identifier: Apache-2.0
import torch, torch_npu
used = torch.full((1000,), 7.0).pin_memory()  # what the next buffer of this size holds
del used
x = torch.full((1000,), 0.5).npu()
try:
    x.lgamma_()
except RuntimeError as error:
    assert "copy an argument to the host" in str(error), error
else:
    raise SystemExit("no error")
assert x.cpu().eq(0.5).all(), x.cpu()
# Nor does a later CPU kernel see it.
assert torch.equal(x.lgamma().cpu(), torch.full((1000,), 0.5).lgamma()), x.lgamma()
