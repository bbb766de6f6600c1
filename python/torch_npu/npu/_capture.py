# SPDX-License-Identifier: Apache-2.0
"""Operators called between the begin and the end of a capture, as a program that runs again.

A capture sees every operator on npu tensors below autograd, on the threads autograd uses for this
one too. They run while they are captured, so that sizes and addresses are real; what they wrote
outside of the capture is put back at its end, as nothing runs while a device graph is captured.
"""

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_unflatten

from ._captured_random import CapturedRandom

_aten = torch.ops.aten
# Results are values of tensors, or sizes that depend on them.
_READING_TAGS = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}
# Their results have the sizes of the indices, unless an index is a mask.
_INDEXING = {_aten.index.Tensor, _aten._unsafe_index.Tensor}
_MASKS = (torch.bool, torch.uint8)
# Memory that nothing is written to.
_EMPTY = {
    _aten.empty.memory_format, _aten.empty_like.default, _aten.empty_permuted.default,
    _aten.empty_strided.default, _aten.new_empty.default, _aten.new_empty_strided.default,
}  # fmt: skip
_CPU = torch.device("cpu")
# Batch norm writes them, and its schema does not say so.
_STATISTICS = ("running_mean", "running_var")


class _Value:
    """The result of a captured call, as an argument of later ones."""

    __slots__ = ("call", "index")

    def __init__(self, call: int, index: int):
        self.call, self.index = call, index


class Capture(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.calls = []  # (operator or Python function, flat arguments, their tree)
        self._known: dict[int, tuple] = {}  # storage -> (value, geometry, weak storage)
        self._first_geometry: dict[int, tuple] = {}  # call -> that of its first new result
        self._outside: dict[int, torch.Tensor] = {}
        self._before: list[tuple[torch.Tensor, torch.Tensor]] = []
        self._random = CapturedRandom()
        self._random.follow_device(torch.npu.current_device())
        self.broken = ""  # the forbidden call that was made

    # While capturing.

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if torch.Tag.inplace_view in func.tags:
            return self._change_geometry(func, args, kwargs)
        flat, tree = tree_flatten((args, kwargs))
        self._refuse(func, args, kwargs)
        self._keep_what_is_written(func, args, kwargs)
        places = [self._place(a) if isinstance(a, torch.Tensor) else a for a in flat]
        self._follow_random(flat)
        out = func(*args, **kwargs)
        self._random.note_call()
        results = tree_flatten(out)[0]
        tensors = [t for t in (*flat, *results) if isinstance(t, torch.Tensor)]
        if any(t.device.type == "npu" for t in tensors):
            self.calls.append((func, places, tree))
            self._note_geometry(flat, places)
            self._note_results(results)
        return out

    def follow(self, generator) -> None:
        self._random.follow(generator)

    def _follow_random(self, arguments) -> None:
        for argument in arguments:
            if getattr(argument, "device", _CPU).type != "npu":
                continue
            if isinstance(argument, torch.Generator):
                self._random.follow(argument)
            elif isinstance(argument, torch.Tensor):
                self._random.follow_device(argument.device.index)
        self._note_random_states()

    def _note_random_states(self) -> None:
        for set_again in self._random.changes():
            self.calls.append((set_again, [], None))

    def _change_geometry(self, func, args, kwargs):
        """What a tensor shows of which memory: `_place` sees it at the next use, and a replay does
        nothing. Only memory of the capture that grows is part of the program."""
        tensor = args[0]
        found, storage = self._find(tensor), tensor.untyped_storage()
        if found is None and id(tensor) in self._outside:
            self._keep_geometry(tensor)
        bytes_before = storage.nbytes()
        out = func(*args, **kwargs)
        if found is not None and storage.nbytes() > bytes_before:
            value, (_, _, offset, dtype, *bits), weak = found
            whole = [-(-storage.nbytes() // dtype.itemsize) - offset]
            self._add(_aten.resize_.default, (value, whole))
            self._known[storage._cdata] = (value, (whole, [1], offset, dtype, *bits), weak)
        return out

    def _keep_geometry(self, tensor: torch.Tensor) -> None:
        """Earlier calls keep the old geometry of a tensor from outside the capture."""
        as_it_was = tensor.detach()
        del self._outside[id(tensor)]
        self._outside[id(as_it_was)] = as_it_was
        for _, places, _ in self.calls:
            places[:] = [as_it_was if place is tensor else place for place in places]

    def _note_geometry(self, tensors, places) -> None:
        """Of values that the call gave other sizes, as out= does; a replay does it too."""
        for tensor, place in zip(tensors, places):
            found = self._find(tensor) if isinstance(place, _Value) else None
            if found is not None and found[0] is place:
                cdata = tensor.untyped_storage()._cdata
                self._known[cdata] = (place, _geometry(tensor), found[2])

    def _refuse(self, func, args, kwargs) -> None:
        tensors = [a for a in tree_flatten((args, kwargs))[0] if isinstance(a, torch.Tensor)]
        if func is _aten._to_copy.default:
            forbidden = _crosses(args[0], kwargs.get("device"))
        elif func is _aten.copy_.default:
            forbidden = _crosses(args[1], args[0].device, args[0])
        else:
            reads = func is _aten.is_nonzero.default or not _READING_TAGS.isdisjoint(func.tags)
            if func in _INDEXING:
                reads = any(i is not None and i.dtype in _MASKS for i in args[1])
            forbidden = reads and any(t.device.type == "npu" for t in tensors)
        if forbidden:
            self.broken = self.broken or str(func)
            refuse(str(func))

    def _keep_what_is_written(self, func, args, kwargs) -> None:
        for i, argument in enumerate(func._schema.arguments):
            declared = argument.alias_info is not None and argument.alias_info.is_write
            if not declared and argument.name not in _STATISTICS:
                continue
            value = args[i] if i < len(args) else kwargs.get(argument.name)
            for tensor in tree_flatten(value)[0]:
                if isinstance(tensor, torch.Tensor) and self._is_outside(tensor):
                    self._snapshot(tensor)

    def _snapshot(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        if any(kept.untyped_storage()._cdata == storage._cdata for kept, _ in self._before):
            return
        whole = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(storage)
        self._before.append((whole, whole.clone()))

    def _find(self, tensor: torch.Tensor):
        found = self._known.get(tensor.untyped_storage()._cdata)
        return None if found is None or found[2].expired() else found

    def _is_outside(self, tensor: torch.Tensor) -> bool:
        return self._find(tensor) is None

    def _place(self, tensor: torch.Tensor):
        """A captured value with the tensor's geometry, or the tensor itself if it is not captured."""
        found = self._find(tensor)
        if found is None:
            self._outside.setdefault(id(tensor), tensor)
            return tensor
        value, known, _ = found
        wanted = _geometry(tensor)
        if known == wanted:
            return value
        dtype, bits = known[3], known[4:]
        if dtype != wanted[3]:
            value = self._as_dtype(value, tensor, dtype)
            known = None
        if known is None or known[:3] != wanted[:3]:
            value = self._add(_aten.as_strided.default, (value, *wanted[:3]))
        for view, had, has in zip((_aten._conj.default, _aten._neg_view.default), bits, wanted[4:]):
            if had != has:
                value = self._add(view, (value,))
        return value

    def _as_dtype(self, value, tensor: torch.Tensor, dtype: torch.dtype) -> _Value:
        """All of the value's memory, in one dimension: views of any sizes are made of it."""
        size, to = tensor.untyped_storage().nbytes(), tensor.dtype
        whole = size // to.itemsize * to.itemsize // dtype.itemsize
        flat = self._add(_aten.as_strided.default, (value, [whole], [1], 0))
        return self._add(_aten.view.dtype, (flat, to))

    def _add(self, func, args) -> _Value:
        flat, tree = tree_flatten((args, {}))
        self.calls.append((func, flat, tree))
        return _Value(len(self.calls) - 1, 0)

    def _note_results(self, results) -> None:
        for i, result in enumerate(results):
            if isinstance(result, torch.Tensor) and result.device.type == "npu":
                storage = result.untyped_storage()
                known = self._known.get(storage._cdata)
                inside = self._is_new(result)
                if (known is None or known[2].expired()) and inside:
                    value = _Value(len(self.calls) - 1, i)
                    weak = torch.multiprocessing.reductions.StorageWeakRef(storage)
                    self._known[storage._cdata] = (value, _geometry(result), weak)
                    self._first_geometry[value.call] = _geometry(result)

    def _is_new(self, result: torch.Tensor) -> bool:
        cdata = result.untyped_storage()._cdata
        return all(t.untyped_storage()._cdata != cdata for t in self._outside.values())

    # After.

    def restore(self) -> None:
        """Restores tensors from outside the capture, and the generator."""
        for whole, before in reversed(self._before):
            whole.copy_(before)
        self._random.restore()
        # Other streams do not wait for the one that was captured.
        torch.npu.current_stream().synchronize()

    def finish(self):
        """(program, tensors it reads from outside). Values that outlive the capture are copied
        to where they were at every run."""
        from torch_npu import _C

        self._note_random_states()
        self.restore()
        outside = list(self._outside.values())
        kept, empty = [], {}
        for value, geometry, weak in self._known.values():
            if not weak.expired():
                storage = torch.UntypedStorage._new_with_weak_ptr(weak.cdata)
                if storage is not None and self._is_unwritten(value, geometry):
                    empty[value.call] = _over(storage, geometry)
                elif storage is not None:
                    kept.append((value, geometry, _over(storage, geometry)))
        given = [*outside, *(t for *_, t in kept), *empty.values()]
        program = _C._TracedGraph()
        places = {id(t): program.input() for t in given}
        if any(tree is None for _, _, tree in self.calls):
            program.host("random state", self._random.begin, [])
        results = []
        look = lambda a: self._lowered(a, places, results)  # noqa: E731
        for i, (func, flat, tree) in enumerate(self.calls):
            if tree is None:
                results.append((program, program.host("random state", func, [])))
                continue
            if i in empty:
                results.append((program, places[id(empty[i])]))
                continue
            args, kwargs = tree_unflatten([look(a) for a in flat], tree)
            made = program.call(
                func._schema.name, func._schema.overload_name, tuple(args), dict(kwargs)
            )
            results.append((program, made))
        for value, geometry, tensor in kept:
            made = look(value)
            for view, has in zip(("aten::_conj", "aten::_neg_view"), geometry[4:]):
                if has:  # its bytes are copied
                    made = program.call(view, "", (made,), {})
            program.call("aten::copy_", "", (places[id(tensor)], made), {})
        program.finish([])
        return program, given

    def _is_unwritten(self, value: _Value, geometry) -> bool:
        """Memory that the capture only allocated stays where it is: what the program writes into
        it is written there, and the rest is left alone."""
        return self.calls[value.call][0] in _EMPTY and geometry == self._first_geometry[value.call]

    def _lowered(self, value, places, results):
        if isinstance(value, torch.Tensor):
            return places[id(value)]
        if not isinstance(value, _Value):
            return value
        program, made = results[value.call]
        if isinstance(made, tuple):
            return made[value.index]
        returns = self.calls[value.call][0]._schema.returns
        is_list = len(returns) == 1 and str(returns[0].type).startswith("List")
        return program.item(made, value.index) if is_list else made


def _geometry(tensor: torch.Tensor) -> tuple:
    """(sizes, strides, offset, dtype, read conjugated, read negated)"""
    geometry = list(tensor.shape), list(tensor.stride()), tensor.storage_offset()
    return (*geometry, tensor.dtype, tensor.is_conj(), tensor.is_neg())


def _over(storage, geometry) -> torch.Tensor:
    """Without the bits: it is for bytes to be written to."""
    size, stride, offset, dtype, *_ = geometry
    made = torch.empty(0, dtype=dtype, device=storage.device)
    return made.set_(storage, offset, size, stride)


def _crosses(source: torch.Tensor, device, to: torch.Tensor | None = None) -> bool:
    """Whether a copy is one between npu and memory of the host that is not pinned. Numbers, which
    are read while they are given, and host memory that is yet to be made are told apart."""
    kinds = {
        source.device.type,
        source.device.type if device is None else torch.device(device).type,
    }
    if kinds != {"npu", "cpu"}:
        return False
    host = source if source.device.type == "cpu" else to
    return host is None or (host.numel() > 1 and not host.is_pinned())


def refuse(what: str):
    from torch_npu.utils._error_code import ErrCode, pta_error

    raise RuntimeError(
        f"NPU graph capture: {what} is not permitted while a stream is captured: it needs a value "
        f"on the host, or waits for the device.{pta_error(ErrCode.NOT_SUPPORT)}"
    )
