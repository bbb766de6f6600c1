# SPDX-License-Identifier: Apache-2.0
"""int4: eight values per int32, the first in the lowest four bits, two's complement."""

import torch

from torch_npu.ops._check import require


def pack_int4(x: torch.Tensor, name: str) -> torch.Tensor:
    require(
        x.size(-1) % 8 == 0,
        f"{name}: Input shape last dim must be divded by 8, but got {x.size(-1)}",
    )
    shifts = torch.arange(0, 32, 4, device=x.device)
    nibbles = (x.to(torch.int64) & 15).unflatten(-1, (-1, 8)) << shifts
    return nibbles.sum(-1).to(torch.int32)


def unpack_int4(x: torch.Tensor) -> torch.Tensor:
    shifts = torch.arange(0, 32, 4, device=x.device)
    nibbles = (x.to(torch.int64).unsqueeze(-1) >> shifts) & 15
    return (nibbles - ((nibbles & 8) << 1)).flatten(-2).to(torch.int8)
