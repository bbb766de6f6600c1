# SPDX-License-Identifier: Apache-2.0
"""How two results are compared: the rules behind TestCase's assertions."""

import numpy as np
import torch

# Added to the denominator, so that two tiny values are not far apart.
_GUARD = {torch.float16: 6e-8}
_DEFAULT_GUARD = 1e-9


class Mismatch(Exception):
    """The two differ; the text says where and by how much."""


def _as_tensor(value) -> torch.Tensor:
    if isinstance(value, torch.Tensor):
        value = value.detach()
        return (value.to_dense() if value.layout != torch.strided else value).cpu()
    return torch.as_tensor(np.asarray(value))


def _check_shape(x: torch.Tensor, y: torch.Tensor) -> None:
    if x.shape != y.shape:
        raise Mismatch(f"shapes differ: {tuple(x.shape)} and {tuple(y.shape)}")


def _check_dtype(x: torch.Tensor, y: torch.Tensor) -> None:
    if x.dtype != y.dtype:
        raise Mismatch(f"dtypes differ: {x.dtype} and {y.dtype}")


def _first(wrong: torch.Tensor) -> tuple:
    return tuple(wrong.nonzero()[0].tolist())


def _check_nan(x: torch.Tensor, y: torch.Tensor) -> None:
    wrong = x.isnan() != y.isnan()
    if wrong.any():
        place = _first(wrong)
        raise Mismatch(f"NaN in one only, at {place}: {x[place].item()} and {y[place].item()}")


def _check_equal(x: torch.Tensor, y: torch.Tensor) -> None:
    wrong = x != y
    if wrong.any():
        place = _first(wrong)
        raise Mismatch(
            f"{int(wrong.sum())} of {x.numel()} elements differ, the first at {place}: "
            f"{x[place].item()} and {y[place].item()}"
        )


def _errors(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Absolute differences; none where both are NaN or the same infinity."""
    error = (x - y).abs()
    return torch.where((x == y) | (x.isnan() & y.isnan()), torch.zeros_like(error), error)


def _describe(x, y, error, allowed: str) -> str:
    worst = error.nan_to_num(nan=float("inf")).argmax()
    place = tuple(int(i) for i in np.unravel_index(int(worst), tuple(x.shape)))
    return (
        f"the largest difference is {error.flatten()[worst].item():.6g}, at {place}: "
        f"{x[place].item()} and {y[place].item()}; {allowed}"
    )


def compare_rtol(x, y, prec: float, prec16: float, auto_trans_dtype: bool) -> None:
    x, y = _as_tensor(x), _as_tensor(y)
    _check_shape(x, y)
    if auto_trans_dtype and x.dtype != y.dtype:
        x = x.to(y.dtype)
    _check_dtype(x, y)
    if x.is_complex():
        raise Mismatch("complex values are not accepted: compare .real and .imag")
    if x.dtype == torch.bool:
        _check_equal(x, y)
        return
    _check_nan(x, y)
    a, b = x.double(), y.double()
    error = _errors(a, b)
    if x.dtype == torch.bfloat16:
        if (error > prec16 + prec16 * b.abs()).any():
            raise Mismatch(_describe(x, y, error, f"allowed is {prec16} + {prec16} * |second|"))
        return
    allowed = prec16 if x.dtype == torch.float16 else prec
    relative = error / (torch.maximum(a.abs(), b.abs()) + _GUARD.get(x.dtype, _DEFAULT_GUARD))
    relative = torch.where(error == 0, error, relative.nan_to_num(nan=float("inf")))
    # An error that is not a number is one.
    off = [int((~(measure <= allowed)).sum()) for measure in (relative, error)]
    if min(off) > allowed * x.numel():
        text = f"{off[0]} of {x.numel()} elements are off by more than {allowed} relatively, "
        text += f"{off[1]} absolutely"
        raise Mismatch(_describe(x, y, error, text))


def compare_almost(x, y, prec: float, allow_inf: bool, exact_dtype: bool) -> None:
    """Within `prec` of each other, absolutely; a number goes with a tensor of one element."""
    x, y = _as_tensor(x), _as_tensor(y)
    if x.dim() == 0 or y.dim() == 0:
        if x.numel() != 1 or y.numel() != 1:
            raise Mismatch(f"shapes differ: {tuple(x.shape)} and {tuple(y.shape)}")
        x, y = x.reshape(()), y.reshape(())
    _check_shape(x, y)
    if exact_dtype:
        _check_dtype(x, y)
    if x.dtype == torch.bool and y.dtype == torch.bool:
        _check_equal(x, y)
        return
    wide = torch.complex128 if x.is_complex() or y.is_complex() else torch.float64
    if not (x.is_floating_point() or y.is_floating_point() or x.is_complex() or y.is_complex()):
        wide = torch.int64
    a, b = x.to(wide), y.to(wide)
    _check_nan(a, b)
    error = _errors(a, b)
    if allow_inf:
        error = torch.where(a.isinf() & b.isinf(), torch.zeros_like(error), error)
    if (~(error <= prec)).any():
        raise Mismatch(_describe(x, y, error.double(), f"allowed is {prec}"))
