# SPDX-License-Identifier: Apache-2.0
"""torchair.scope: `with` blocks that say how Ascend is to run a part of a graph.

Streams, core limits and kernel merging are choices of Ascend's engine: arguments are checked, and
the block runs as it would without. They do not break a graph.
"""

import torch

from torchair._accepted import note


class _Scope:
    """Entered and left without a trace."""

    def __new__(cls, *_, **__):
        note(f"torchair.scope.{cls.__name__}")
        return super().__new__(cls)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None


class npu_stream_switch(_Scope):
    """The block on a stream of its own."""

    def __init__(
        self, stream_tag: str, stream_priority: int = 0, enable_inner_parallel: bool = True
    ):
        if not isinstance(stream_tag, str) or not stream_tag:
            raise ValueError("npu_stream_switch: stream_tag: expected a name")
        if not isinstance(stream_priority, int):
            raise ValueError("npu_stream_switch: stream_priority: expected an int")
        if not isinstance(enable_inner_parallel, bool):
            raise ValueError("npu_stream_switch: enable_inner_parallel: expected a bool")


class super_kernel(_Scope):
    """The block as one kernel; without a name, as none."""

    def __init__(self, scope: str, options: str = ""):
        if not isinstance(scope, (str, type(None))) or not isinstance(options, str):
            raise ValueError("super_kernel: expected text for scope and options")


class limit_core_num(_Scope):
    """The block on so many cores at most. A chip without vector cores has 0 of them."""

    def __init__(self, op_aicore_num: int, op_vectorcore_num: int):
        for name, value, least in (
            ("op_aicore_num", op_aicore_num, 1),
            ("op_vectorcore_num", op_vectorcore_num, 0),
        ):
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ValueError(
                    f"limit_core_num: {name}: expected an int from {least} on, but got {value!r}"
                )


class op_never_timeout(_Scope):
    """The block's kernels without a time limit."""

    def __init__(self, enable: bool = True):
        if not isinstance(enable, bool):
            raise ValueError(
                f"op_never_timeout: enable: expected a bool, but got {type(enable).__name__}"
            )


class data_dump(_Scope):
    """The block's values in a device dump; debug.data_dump writes those of whole graphs."""

    def __init__(self):
        pass


class profiler_trace(_Scope):
    """Time stamps before the block, after it, or both."""

    def __init__(self, index: str, mode: str):
        if not isinstance(index, str):
            raise ValueError(f"profiler_trace: index: expected text, but got {index!r}")
        if mode not in ("begin", "end", "both"):
            raise ValueError(f"profiler_trace: mode: {mode!r} is not begin, end or both")


def npu_wait_tensor(self: torch.Tensor, dependency: torch.Tensor) -> torch.Tensor:
    """`self`, after `dependency` was computed, which is so in a graph's order."""
    for name, value in (("self", self), ("dependency", dependency)):
        if not isinstance(value, torch.Tensor):
            raise TypeError(
                f"npu_wait_tensor: {name}: expected a tensor, but got {type(value).__name__}"
            )
    return self
