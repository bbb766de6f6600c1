# SPDX-License-Identifier: Apache-2.0
"""Walking and rebuilding nested arguments."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping

import torch

from op_tools.core import _C, options

_LEAVES = (int, float, complex, str, bytes, bool, torch.Tensor, type(None))


def leaves(container: object) -> Iterator[object]:
    """What nested arguments hold, depth first; of a dict, keys and values. An array or a storage is
    one value, however many numbers are in it."""
    if isinstance(container, Mapping):
        for key, value in container.items():
            yield from leaves(key)
            yield from leaves(value)
    elif isinstance(container, (list, tuple, set, frozenset, deque)):
        for item in container:
            yield from leaves(item)
    else:
        yield container


def traverse_container(container: object) -> Iterator[object]:
    """ditorch's helper: as leaves(), and anything else with a length and an index gives its items
    too (a storage its bytes)."""
    for leaf in leaves(container):
        if isinstance(leaf, _LEAVES):
            yield leaf
            continue
        try:
            items = [leaf[i] for i in range(len(leaf))]
        except Exception:  # whatever a foreign type raises, it is no container then
            yield leaf
            continue
        yield from items


def transform_contrainer(obj: object, func: Callable[[object], object]) -> object:
    """The same structure with func(leaf) for every leaf; named results become tuples."""
    if isinstance(obj, torch.Tensor):
        return func(obj)
    if isinstance(obj, dict):
        return {key: transform_contrainer(value, func) for key, value in obj.items()}
    if isinstance(obj, tuple):
        items = [transform_contrainer(value, func) for value in obj]
        if type(obj) is tuple or type(obj).__module__.startswith("torch"):
            return tuple(items)
        return type(obj)(*items) if hasattr(obj, "_fields") else type(obj)(items)
    if isinstance(obj, (list, set)):
        return type(obj)(transform_contrainer(value, func) for value in obj)
    return func(obj)


def same_for_same(func: Callable[[object], object]) -> Callable[[object], object]:
    """func, called once per tensor: what was one tensor stays one."""
    made: dict[int, tuple] = {}

    def once(leaf: object) -> object:
        if not isinstance(leaf, torch.Tensor):
            return func(leaf)
        if id(leaf) not in made:
            made[id(leaf)] = (leaf, func(leaf))
        return made[id(leaf)][1]

    return once


def tensors_in(*values: object) -> list[torch.Tensor]:
    """Tensors, in the order they are met."""
    return [leaf for leaf in leaves(values) if isinstance(leaf, torch.Tensor)]


def _is_device_text(value: object) -> bool:
    if not isinstance(value, str):
        return False
    try:
        torch.device(value)
    except RuntimeError:
        return False
    return True


def device_of(*args: object, **kwargs: object) -> torch.device | None:
    """The first device other than the cpu among tensors and devices, keywords included."""
    for leaf in leaves((args, kwargs)):
        device = leaf.device if isinstance(leaf, torch.Tensor) else leaf
        if _is_device_text(device):
            device = torch.device(device)
        if isinstance(device, torch.device) and device.type != "cpu":
            return device
    index = kwargs.get("device")
    accelerator = options.accelerator()
    if isinstance(index, int) and not isinstance(index, bool) and accelerator is not None:
        return torch.device(accelerator, index)
    return None


def is_cpu_op(*args: object, **kwargs: object) -> tuple[bool, torch.device]:
    """(True, cpu), or (False, the first other device) of a call's arguments."""
    device = device_of(*args, **kwargs)
    return (True, torch.device("cpu")) if device is None else (False, device)


def copy_tensor(tensor: torch.Tensor, device: object, dtype: torch.dtype | None = None):
    """A detached copy there, with the same strides and requires_grad.

    Elements that share memory (expand, overlapping as_strided) share it in the copy too. What stands
    for a Python number does so in the copy.
    """
    source = tensor.detach()
    dtype = dtype or source.dtype
    if source.layout != torch.strided or source.is_quantized:
        copy = source.to(device=device, dtype=dtype, copy=True)
    else:
        extent = 1 + sum((n - 1) * s for n, s in zip(source.shape, source.stride()))
        if source.numel() and extent != source.numel():
            flat = source.as_strided((extent,), (1,)).to(device=device, dtype=dtype, copy=True)
            copy = flat.as_strided(source.shape, source.stride())
        else:
            flat = torch.empty_strided(source.shape, source.stride(), dtype=dtype, device=device)
            copy = flat.copy_(source)
    if tensor.requires_grad and (copy.is_floating_point() or copy.is_complex()):
        copy.requires_grad_()
    if _C.is_wrapped_number(tensor):
        _C.set_wrapped_number(copy)
    return copy


def to_device(
    device: object,
    obj: object,
    detach: bool = False,
    dtype_cast_dict: dict[torch.dtype, torch.dtype] | None = None,
) -> object:
    """The same structure on another device; tensors of a mapped dtype are cast."""
    dtypes = dtype_cast_dict or {}

    def move(leaf: object) -> object:
        if isinstance(leaf, torch.Tensor):
            dtype = dtypes.get(leaf.dtype, leaf.dtype)
            return (
                copy_tensor(leaf, device, dtype) if detach else leaf.to(device=device, dtype=dtype)
            )
        if isinstance(leaf, torch.device) or (_is_device_text(leaf)):
            return torch.device(device)
        return leaf

    return transform_contrainer(obj, move)
