# SPDX-License-Identifier: Apache-2.0
"""Whether the driver computes a call of a graph: asked by calling it once, on made-up operands.

Which calls a driver takes depends on dtypes, sizes and strides, and one operator may become several calls
of the driver, so that no list of operators tells. Only PyTorch's operators and npu's are called:
the side effects of others are unknown.
"""

import contextlib

import torch
from torch.utils._pytree import tree_flatten

from torchair._graph_dump import _size
from torchair.fx_summary import values_of

_TRIED = ("aten", "prims", "npu")
_found: dict[tuple, tuple[bool | None, str]] = {}


def computes(node) -> tuple[bool | None, str]:
    """(whether the driver computes the node's call, why not). None: it could not be tried."""
    call = (values_of(tuple(node.args)), values_of(dict(node.kwargs)))
    key = (node.target, _form(call))
    if key not in _found:
        _found[key] = _tried(node.target, call)
    return _found[key]


def is_tried(target) -> bool:
    return target.namespace in _TRIED


def _tried(target, call) -> tuple[bool | None, str]:
    wrong = None
    for fill in _fills(target):
        try:
            return _call(target, call, fill)
        except Exception as error:  # these operands were refused: others may not be
            wrong = wrong or error
    lines = str(wrong).splitlines() or [""]
    return None, f"a call on made-up operands raised {type(wrong).__name__}: {lines[0]}"


def _call(target, call, fill) -> tuple[bool, str]:
    from torch._subclasses.fake_tensor import unset_fake_temporarily
    from torch_npu import _C

    with (
        unset_fake_temporarily(),
        torch.no_grad(),
        torch._C._DisableAutocast(),
        _kept_seeds(target),
    ):
        args, kwargs = made(call, fill)
        before = _C._cpu_work()[0]
        target(*args, **kwargs)
        calls, overload, reason = _C._cpu_work()
    if calls == before:
        return True, ""
    inside = "" if overload == _name(target) else f" in {overload}"
    return False, f"the CPU computes it{inside}: {reason}"


def _name(target) -> str:
    return f"{target._schema.name}.{target._schema.overload_name}".removesuffix(".")


@contextlib.contextmanager
def _kept_seeds(target):
    """Numbers drawn here are not missing in the program."""
    if torch.Tag.nondeterministic_seeded not in target.tags:
        yield
        return
    with torch.random.fork_rng(device_type="npu"):
        yield


def _fills(target) -> tuple:
    """Indices want zeros, divisors and assertions ones, decompositions a regular matrix."""
    return (_ones,) if "_assert" in target._schema.name else (_zeros, _ones, _identity)


def _zeros(tensor: torch.Tensor) -> None:
    tensor.zero_()


def _ones(tensor: torch.Tensor) -> None:
    tensor.fill_(1)


def _identity(tensor: torch.Tensor) -> None:
    square = tensor.dim() > 1 and tensor.shape[-1] == tensor.shape[-2]
    if square and (tensor.is_floating_point() or tensor.is_complex()):
        tensor.zero_().diagonal(dim1=-2, dim2=-1).fill_(1)
    else:
        tensor.zero_()


def made(value, fill=_zeros):
    """Real operands in the place of fakes."""
    if isinstance(value, torch.Tensor):
        sizes, strides = map(_size, value.shape), map(_size, value.stride())
        tensor = torch.empty_strided(
            list(sizes), list(strides), dtype=value.dtype, device=value.device
        )
        fill(tensor)
        return tensor
    if isinstance(value, torch.SymInt):
        return _size(value)
    if isinstance(value, (torch.SymFloat, torch.SymBool)):
        return value.node.hint
    if isinstance(value, (list, tuple)):
        return type(value)(made(v, fill) for v in value)
    if isinstance(value, dict):
        return {k: made(v, fill) for k, v in value.items()}
    return value


def _form(call) -> tuple:
    """What tells two calls apart, without the values of tensors."""
    leaves, tree = tree_flatten(call)
    return (str(tree), *map(_leaf_form, leaves))


def _leaf_form(value) -> str:
    if not isinstance(value, torch.Tensor):
        return f"{type(value).__name__} {value}"
    sizes, strides = [*map(_size, value.shape)], [*map(_size, value.stride())]
    return f"{value.dtype} {value.device} {sizes} {strides}"
