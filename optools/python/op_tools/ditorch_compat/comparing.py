# SPDX-License-Identifier: Apache-2.0
"""ditorch's comparison of two results: allclose, cosine, largest differences.

The wider of two dtypes is kept: differences are of the values as they are, in float64. Only
`allclose` sees a reference rounded to the result's dtype, since no kernel can return more.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch

from op_tools.core import options, quiet
from op_tools.core.containers import leaves, tensors_in

NAN = float("nan")
_TOLERANCES = {
    torch.float16: 1e-4,
    torch.bfloat16: 1e-3,
    torch.float32: 1e-5,
    torch.float64: 1e-8,
}
_OTHER = 1e-3


def get_error_tolerance(dtype: torch.dtype, op_name: str) -> tuple[float, float]:
    """(atol, rtol): of the operator and dtype, of the dtype, of all, or built in."""
    base = "AUTOCOMPARE_ERROR_TOLERANCE"
    names = [base]
    if dtype in _TOLERANCES:
        short = str(dtype).removeprefix("torch.").upper()
        suffix = op_name.split(" ")[0].rpartition(".")[2].upper()
        names = [f"{suffix}_{base}_{short}", f"{base}_{short}", base]
    for name in names:
        found = options.tolerance(name)
        if found is not None:
            return found
    return (_TOLERANCES.get(dtype, _OTHER),) * 2


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    """Values as float64 on the cpu; a complex number is its two parts."""
    host = tensor.detach()
    if host.layout != torch.strided:
        host = host.to_dense()
    if host.is_quantized:
        host = host.dequantize()
    host = host.cpu()
    if host.is_complex():
        host = torch.view_as_real(host.resolve_conj())
    return host.resolve_neg().to(torch.float64).reshape(-1)


def tensor_cos_similarity(a: torch.Tensor, b: torch.Tensor) -> float:
    """1 for equal directions; two tensors of zeros are equal."""
    with quiet():
        x, y = _flat(a), _flat(b)
        same = (x == y) | (x.isnan() & y.isnan())
        if bool(same.all()):
            return 1.0
        scale = max(x.abs().max().item(), y.abs().max().item())
        if not math.isfinite(scale):
            return NAN
        x, y = x / scale, y / scale
        norms = (x.norm() * y.norm()).item()
        return (x.dot(y).item() / norms) if norms else 0.0


def tensor_max_diff(a: torch.Tensor, b: torch.Tensor) -> tuple[float, float]:
    """(largest |a-b|, largest |a-b| / (|a|+1e-6)); equal infinities and NaN differ by 0."""
    with quiet():
        if a.numel() == 0:
            return 0.0, 0.0
        x, y = _flat(a), _flat(b)
        same = (x == y) | (x.isnan() & y.isnan())
        difference = torch.where(same, 0.0, (x - y).abs())
        largest = difference.max()
        relative = torch.where(same, 0.0, difference / (x.abs() + 1e-6)).max().item()
        if a.dtype == b.dtype == torch.float32:
            largest = largest.float()  # as PyTorch itself would give it
        return largest.item(), relative


def tensor_allclose(a: torch.Tensor, b: torch.Tensor, atol: float, rtol: float) -> bool:
    """|a-b| <= atol + rtol |b| in float64, b rounded to a's dtype; NaN equals NaN."""
    with quiet():
        if b.dtype != a.dtype:
            b = b.to(a.dtype) if a.is_complex() or not b.is_complex() else b
        return bool(torch.allclose(_flat(a), _flat(b), atol=atol, rtol=rtol, equal_nan=True))


def _row(name: str, allclose: bool, worst: tuple, error: str, atol: float, rtol: float) -> dict:
    absolute, relative, cosine = worst
    return {
        "name": f"{name:<30}",
        "allclose": allclose,
        "cosine_similarity": f"{cosine:.9f}",
        "max_abs_diff": f"{absolute:.9f}",
        "max_relative_diff": f"{relative:.9f}",
        "atol": f"{atol:.9f}",
        "rtol": f"{rtol:.9f}",
        "error_info": error,
        "_values": (absolute, relative, cosine, atol, rtol),
    }


def _compare_tensors(name: str, a: torch.Tensor, b: torch.Tensor) -> dict:
    atol, rtol = get_error_tolerance(a.dtype, name)
    if a.shape != b.shape:
        error = f"Inconsistent shape: {tuple(a.shape)} {tuple(b.shape)}"
        return _row(name, False, (NAN, NAN, NAN), error, atol, rtol)
    error = f"Inconsistent dtypes: {a.dtype} {b.dtype}" if a.dtype != b.dtype else ""
    if a.numel() == 0:
        return _row(name, True, (0.0, 0.0, 1.0), error, atol, rtol)
    worst = (*tensor_max_diff(a, b), tensor_cos_similarity(a, b))
    return _row(name, tensor_allclose(a, b, atol, rtol), worst, error, atol, rtol)


def _compare_numbers(name: str, a: float, b: float) -> dict:
    tol = 1e-6
    if a == b or (a != a and b != b):
        return _row(name, True, (0.0, 0.0, 1.0), "", tol, tol)
    difference = abs(a - b)
    relative = difference / (abs(b) + tol)
    close = difference <= tol + tol * abs(b)
    return _row(name, close, (difference, relative, NAN), "", tol, tol)


def _as_tensor(value: object) -> object:
    """A storage's bytes and an array's numbers, as a tensor of them."""
    if isinstance(value, torch.UntypedStorage):
        return torch.empty(0, dtype=torch.uint8).set_(value.cpu())
    # PyTorch may be there without numpy.
    is_array = type(value).__module__ == "numpy" and type(value).__name__ == "ndarray"
    if is_array and value.dtype.kind in "biufc":
        return torch.tensor(value)
    return value


def _equal(a: object, b: object) -> bool:
    """By ==, whatever a foreign type makes of it."""
    try:
        same = a == b
        return bool(same.all()) if hasattr(same, "all") else bool(same)
    except Exception:
        return False


def _compare_leaf(name: str, a: object, b: object) -> dict:
    if a is None and b is None:
        return _row(name, True, (0.0, 0.0, 1.0), "", 0.0, 0.0)
    a, b = _as_tensor(a), _as_tensor(b)
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        return _compare_tensors(name, a, b)
    if type(a) is not type(b):
        error = f"Inconsistent types: {type(a).__name__} {type(b).__name__}"
        return _row(name, False, (NAN, NAN, NAN), error, 0.0, 0.0)
    if isinstance(a, (int, float)) and not isinstance(a, bool):
        return _compare_numbers(name, a, b)
    same = _equal(a, b)
    worst = (0.0, 0.0, 1.0) if same else (NAN, NAN, NAN)
    error = "" if same or isinstance(a, bool) else f"Inconsistent value: {a} {b}"
    return _row(name, same, worst, error, 0.0, 0.0)


def _worst(values: Iterable[float], pick, best: float) -> float:
    """NaN if any is NaN, else the worst."""
    values = list(values)
    if any(math.isnan(value) for value in values):
        return NAN
    return pick(values, default=best)


def _lengths_differ(a: object, b: object) -> bool:
    return isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)) and len(a) != len(b)


def compare_result(name: str, a: object, b: object, ignore_index: int | None = None) -> dict:
    """Compares a result with its reference, leaf by leaf; numbers are those of the worst leaf."""
    left, right = list(leaves(a)), list(leaves(b))
    if len(left) != len(right) or _lengths_differ(a, b):
        return {
            "allclose": False,
            "max_abs_diff": NAN,
            "max_relative_diff": NAN,
            "error_info": f"Inconsistent output length: {len(left)} {len(right)}",
            "atol": NAN,
            "rtol": NAN,
            "result_list": [],
        }
    several = len(left) > 1
    rows = [
        _compare_leaf(f"{name}[{i}]" if several else name, x, y)
        for i, (x, y) in enumerate(zip(left, right))
        if i != ignore_index
    ]
    columns = list(zip(*(row.pop("_values") for row in rows))) or [()] * 5
    errors = [row["error_info"] for row in rows if row["error_info"]]
    return {
        "allclose": all(row["allclose"] for row in rows),
        "cos_similarity": _worst(columns[2], min, 1.0),
        "max_abs_diff": _worst(columns[0], max, 0.0),
        "max_relative_diff": _worst(columns[1], max, 0.0),
        "error_info": "; ".join(errors),
        "atol": max(columns[3], default=0.0),
        "rtol": max(columns[4], default=0.0),
        "name": name,
        "result_list": rows,
    }


def is_inf_or_nan(x: object) -> object:
    """The same structure of booleans; tuple-like results become tuples."""
    if isinstance(x, torch.Tensor):
        if not (x.is_floating_point() or x.is_complex()) or x.numel() == 0:
            return False
        with quiet():
            return not bool(_flat(x).isfinite().all())
    if isinstance(x, dict):
        return {key: is_inf_or_nan(value) for key, value in x.items()}
    if isinstance(x, list):
        return [is_inf_or_nan(value) for value in x]
    if isinstance(x, (tuple, set)):
        return tuple(is_inf_or_nan(value) for value in x)
    return isinstance(x, (float, complex)) and not (math.isfinite(abs(x)))


def compute_tensor_features(arg: object) -> list[dict]:
    """inf_or_nan, min, max, mean, std and norm of each tensor; `-` where they mean nothing."""
    return [_features(tensor) for tensor in tensors_in(arg)]


def _features(tensor: torch.Tensor) -> dict:
    from op_tools.core import _C

    row = {"inf_or_nan": False, **dict.fromkeys("min max mean std norm".split(), "-")}
    if tensor.layout != torch.strided or tensor.numel() == 0 or tensor.is_quantized:
        return row
    with quiet():
        stats = _C.statistics(tensor.detach().cpu())
    count, finite = stats["count"], stats["count"] - stats["nan"] - stats["+inf"] - stats["-inf"]
    mean = stats["sum"] / finite if finite else NAN
    variance = max(stats["squares"] / finite - mean * mean, 0.0) if finite else NAN
    correction = finite / (finite - 1) if finite > 1 else NAN
    row.update(
        inf_or_nan=finite != count,
        min=stats["min"],
        max=stats["max"],
        mean=mean,
        std=(variance * correction) ** 0.5,
        norm=stats["squares"] ** 0.5,
    )
    return row
