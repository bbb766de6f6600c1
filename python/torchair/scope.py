# SPDX-License-Identifier: Apache-2.0
"""torchair.scope: `with` blocks that say how Ascend is to run a part of a graph.

Streams, core limits and kernel merging are choices of Ascend's engine: arguments are checked, and
the block runs as it would without. They do not break a graph.
"""


class _Scope:
    """Entered and left without a trace."""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None


class npu_stream_switch(_Scope):
    """The block on a stream of its own."""

    def __init__(self, stream_tag: str, stream_priority: int = 0):
        if not isinstance(stream_tag, str) or not stream_tag:
            raise ValueError("npu_stream_switch: stream_tag: expected a name")
        if not isinstance(stream_priority, int):
            raise ValueError("npu_stream_switch: stream_priority: expected an int")


class super_kernel(_Scope):
    """The block as one kernel."""

    def __init__(self, scope: str, options: str = ""):
        if not isinstance(scope, str) or not isinstance(options, str):
            raise ValueError("super_kernel: expected text for scope and options")


class limit_core_num(_Scope):
    """The block on so many cores at most."""

    def __init__(self, op_aicore_num: int, op_vectorcore_num: int):
        for name, value in (
            ("op_aicore_num", op_aicore_num),
            ("op_vectorcore_num", op_vectorcore_num),
        ):
            if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
                raise ValueError(f"limit_core_num: {name}: expected a positive int")


class op_never_timeout(_Scope):
    """The block's kernels without a time limit."""

    def __init__(self, enable: bool):
        if not isinstance(enable, bool):
            raise ValueError("op_never_timeout: enable: expected a bool")


class data_dump(_Scope):
    """The block's values in a device dump; debug.data_dump writes those of whole graphs."""
