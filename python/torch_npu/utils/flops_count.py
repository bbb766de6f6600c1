# SPDX-License-Identifier: Apache-2.0
"""Counts the floating point operations of matrix products, convolutions and attention."""

import warnings

from torch_npu import _C

__all__ = ["FlopsCounter"]


class _FlopsCounter:
    """Counts on every thread from start() to stop(), backward included."""

    def start(self) -> None:
        """From zero."""
        _C._flops_start()

    def stop(self) -> None:
        _C._flops_stop()

    def pause(self) -> None:
        """From here on calls are only counted as traversed: recomputation, for example."""
        _C._flops_pause()

    def resume(self) -> None:
        _C._flops_resume()

    def get_flops(self) -> list[int]:
        """[counted, traversed]: the second includes calls while paused."""
        return list(_C._flops_counts())


class FlopsCounter(_FlopsCounter):
    def __init__(self):
        warnings.warn(
            "torch_npu.utils.flops_count.FlopsCounter will be deprecated; "
            "torch.utils.flop_counter.FlopCounterMode counts on any device.",
            FutureWarning,
            stacklevel=2,
        )
