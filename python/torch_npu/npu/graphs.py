# SPDX-License-Identifier: Apache-2.0
"""Device graphs: torch.npu.NPUGraph, torch.npu.graph, make_graphed_callables.

Works on every driver: the recorder of compiled graphs records the calls between the begin and the end
of a capture, and its engine replays them. Results stay where they were captured, as with torch.cuda.
"""

import gc
import itertools
import sys
import warnings

import torch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from torch_npu import _C

from . import _later

__all__ = [name for name, part in _later.LATER.items() if part == _later.GRAPHS]
globals().update({name: getattr(_later, name) for name in __all__})
__all__ += [
    "NPUGraph", "graph", "graph_pool_handle", "is_current_stream_capturing",
    "make_graphed_callables",
]  # fmt: skip

_pools = itertools.count(1)
_capturing: dict[tuple[int, int], "NPUGraph"] = {}  # by stream
_MODES = ("global", "thread_local", "relaxed")


def _key(stream) -> tuple[int, int]:
    return stream.stream_id, stream.device_index


def is_current_stream_capturing() -> bool:
    return torch.npu.is_initialized() and _C._is_stream_capturing(*_key(torch.npu.current_stream()))


def graph_pool_handle():
    """A name for memory that several graphs share."""
    return (0, next(_pools))


_PLAIN = (torch.Tensor, torch.nn.Parameter)


class _Operators(TorchDispatchMode):
    """Gives the recorder the operators below autograd, on the threads autograd uses for this one too."""

    def __init__(self, recorder):
        super().__init__()
        self._recorder = recorder

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if any(kind not in _PLAIN for kind in types):
            return NotImplemented  # what a subclass makes of it comes here again
        return self._recorder.call(func, args, kwargs or {})


class NPUGraph:
    """A captured piece of work, replayed with replay()."""

    def __init__(self, keep_graph: bool = False):
        self._keep_graph = keep_graph
        self._pool = None
        self._recorder = None  # while capturing
        self._operators = None
        self._key = None
        self._captured = None
        self._generators = []

    def capture_begin(self, pool=None, capture_error_mode: str = "global") -> None:
        if capture_error_mode not in _MODES:
            raise ValueError(
                f"capture_error_mode: {capture_error_mode!r} is not one of {', '.join(_MODES)}"
            )
        if self._captured is not None or self._recorder is not None:
            raise RuntimeError(
                "This NPUGraph instance already owns a captured graph. "
                "To capture a new graph, create a new instance."
            )
        stream = torch.npu.current_stream()
        if stream == torch.npu.default_stream():
            raise RuntimeError(
                "NPU graphs must be captured on a non-default stream. "
                "(However, after capture, it's ok to replay them on the default stream.)"
            )
        recorder = _C._GraphCapture(*_key(stream))
        for generator in self._generators:
            recorder.follow(generator)
        if not _C._begin_stream_capture(*_key(stream)):
            raise RuntimeError("NPU graph capture: this stream is being captured already.")
        self._key = _key(stream)
        self._pool = pool or (next(_pools), 0)
        self._recorder, self._operators = recorder, _Operators(recorder)
        _capturing[self._key] = self
        self._operators.__enter__()

    def capture_end(self) -> None:
        if self._recorder is None:
            raise RuntimeError("capture_end() called before capture_begin().")
        if _key(torch.npu.current_stream()) != self._key:
            self._abandon()
            raise RuntimeError("Capture must end on the same stream it began on.")
        recorder, broken = self._end()
        if broken:
            recorder.restore()
            # An error that is on its way already says it better.
            if sys.exc_info()[0] is None:
                raise RuntimeError(
                    f"The NPU graph capture is lost: {broken} was called while it went on."
                )
            return
        self._captured = recorder.finish()
        if not self._captured.names():
            warnings.warn(
                "The NPU Graph is empty. This usually means that the graph was attempted to be "
                "captured on wrong device or stream.",
                stacklevel=2,
            )

    def _abandon(self) -> None:
        """Ends a capture that failed and discards what it recorded."""
        if self._recorder is not None:
            self._end()[0].restore()

    def _end(self):
        """(recorder, the forbidden call that was tried in it)."""
        recorder, self._recorder = self._recorder, None
        operators, self._operators = self._operators, None
        del _capturing[self._key]
        operators.__exit__(None, None, None)
        return recorder, _C._end_stream_capture(*self._key)

    @staticmethod
    def get_currently_capturing_graph() -> "NPUGraph":
        graph = _capturing.get(_key(torch.npu.current_stream()))
        if graph is None:
            raise RuntimeError(
                "NPUGraph.get_currently_capturing_graph: the current stream is not being captured. "
                "Call it between capture_begin() and capture_end(), on the stream of the capture."
            )
        return graph

    def instantiate(self) -> None:
        if self._captured is None:
            raise RuntimeError(
                "Called NPUGraph::instantiate without a preceding successful capture."
            )

    def replay(self) -> None:
        if self._captured is None:
            raise RuntimeError("Called NPUGraph::replay without a preceding successful capture.")
        outer = _capturing.get(_key(torch.npu.current_stream())) if _capturing else None
        if outer is None:
            self._captured.replay()
        else:
            with _disable_current_modes():
                outer._recorder.replay(self._captured)

    def reset(self) -> None:
        self._captured = self._pool = None

    def pool(self):
        if self._pool is None:
            raise RuntimeError("Called NPUGraph::pool() without a preceding successful capture.")
        return self._pool

    def register_generator_state(self, generator) -> None:
        """Every replay draws from generators as eager mode does. One that is registered before
        the capture is followed from its beginning, others from their first use in it."""
        self._generators.append(generator)

    def enable_debug_mode(self) -> None:
        """Captured graphs can always be dumped."""

    def debug_dump(self, debug_path: str) -> None:
        if self._captured is None:
            raise RuntimeError(
                "Called NPUGraph::debug_dump without a preceding successful capture."
            )
        with open(debug_path, "w", encoding="utf-8") as file:
            file.writelines(f"{name}\n" for name in self._captured.names())


class graph:
    """Captures what its `with` block queues into an NPUGraph."""

    default_capture_stream = None

    def __init__(
        self, npu_graph, pool=None, stream=None, capture_error_mode="global",
        auto_dispatch_capture=False, report_shape=None,
    ):  # fmt: skip
        if graph.default_capture_stream is None:
            graph.default_capture_stream = torch.npu.Stream()
        self.npu_graph = npu_graph
        self.pool = pool
        self.capture_stream = stream if stream is not None else graph.default_capture_stream
        self.capture_error_mode = capture_error_mode
        self._context = torch.npu.stream(self.capture_stream)

    def __enter__(self):
        torch.npu.synchronize()
        gc.collect()
        torch.npu.empty_cache()
        self.capture_stream.wait_stream(torch.npu.current_stream())
        self._context.__enter__()
        try:
            self.npu_graph.capture_begin(self.pool, self.capture_error_mode)
        except BaseException:
            self._context.__exit__(None, None, None)
            raise

    def __exit__(self, kind, value, trace):
        try:
            if kind is None:
                self.npu_graph.capture_end()
            else:
                self.npu_graph._abandon()
        finally:
            self._context.__exit__(kind, value, trace)


from ._graphed_callables import make_graphed_callables  # noqa: E402
