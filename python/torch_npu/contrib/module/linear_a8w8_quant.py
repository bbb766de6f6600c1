# SPDX-License-Identifier: Apache-2.0
"""Linear layers on int8, under the name they had before LinearQuant."""

from .linear_quant import LinearQuant

__all__ = ["LinearA8W8Quant"]


class LinearA8W8Quant(LinearQuant):
    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, offset: bool = False,
        pertoken_scale: bool = False, device=None, dtype=None, output_dtype=None,
    ):  # fmt: skip
        super().__init__(
            in_features, out_features, bias=bias, offset=offset, pertoken_scale=pertoken_scale,
            device=device, dtype=dtype, output_dtype=output_dtype,
        )  # fmt: skip
