# SPDX-License-Identifier: Apache-2.0
"""Dropout under the names Ascend's versions of Fairseq and others use.

Theirs draw masks ahead of time on another stream; here a mask costs nothing worth that.
"""

from torch import Tensor, nn

__all__ = ["NpuCachedDropout", "NpuFairseqDropout", "NpuPreGenDropout"]


class NpuFairseqDropout(nn.Dropout):
    """nn.Dropout that can stay on in evaluation, for the modules it is told of."""

    def __init__(self, p: float, module_name: str | None = None):
        super().__init__(p)
        self.module_name = module_name
        self.apply_during_inference = False

    @classmethod
    def enable_dropout_ensemble(cls, model: nn.Module) -> None:
        """Nothing to prepare: masks are drawn where they are used."""

    def forward(self, x: Tensor) -> Tensor:
        active = self.training or self.apply_during_inference
        return nn.functional.dropout(x, self.p, active, self.inplace)

    def make_generation_fast_(
        self,
        name: str,
        retain_dropout: bool = False,
        retain_dropout_modules: list[str] | None = None,
        **kwargs,
    ) -> None:
        """Keeps dropout on in evaluation: everywhere, or in the modules that are named."""
        named = retain_dropout_modules is None or self.module_name in retain_dropout_modules
        self.apply_during_inference = retain_dropout and named


class NpuCachedDropout(NpuFairseqDropout):
    pass


class NpuPreGenDropout(NpuFairseqDropout):
    pass
