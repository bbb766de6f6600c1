# SPDX-License-Identifier: Apache-2.0
"""Compares two dumps of a model's modules."""

from __future__ import annotations

import json
import math
import os
import re

import torch

from op_tools.core import first_line
from op_tools.core.containers import tensors_in
from op_tools.core.printing import many
from op_tools.core.tables import dict_data_list_to_table
from op_tools.ditorch_compat.comparing import tensor_cos_similarity
from op_tools.module_tools.dump import ORDER, load

ATOL = RTOL = 1e-3


def metrics(expected: torch.Tensor, real: torch.Tensor, atol: float = ATOL, rtol: float = RTOL):
    """How far `real` is from `expected`, in float64."""
    if expected.shape != real.shape:
        return {"allclose": 0, "why": f"shape {tuple(real.shape)}, not {tuple(expected.shape)}"}
    dtypes = (
        {"dtype": f"{real.dtype}, not {expected.dtype}"} if expected.dtype != real.dtype else {}
    )
    if expected.numel() == 0:
        return {"allclose": 1, **dtypes}
    a, b = (
        t.detach().to(torch.complex128 if t.is_complex() else torch.float64)
        for t in (expected, real)
    )
    if torch.allclose(b, a, atol=atol, rtol=rtol, equal_nan=True):
        return {"allclose": 1, **dtypes}
    difference = (a - b).abs()
    place = int(torch.nan_to_num(difference, nan=math.inf).argmax())
    outside = int((~(difference <= atol + rtol * a.abs())).sum())
    worst = difference.flatten()[place].item()
    wanted = a.flatten()[place].abs().item()
    return {
        "allclose": 0,
        **dtypes,
        "max_diff": worst,
        "expected": _number(a.flatten()[place]),
        "real": _number(b.flatten()[place]),
        "relative": worst / wanted if wanted else math.inf,
        "cosine": tensor_cos_similarity(b, a),
        "l1": difference.sum().item(),
        "l2": difference.norm().item(),
        "outside": outside,
        "share_outside": outside / difference.numel(),
    }


def _number(value: torch.Tensor) -> float | str:
    return str(value.item()) if value.is_complex() else value.item()


def _metrics(expected: torch.Tensor, real: torch.Tensor) -> dict:
    try:
        return metrics(expected, real)
    except (RuntimeError, NotImplementedError) as error:  # sparse, quantised
        return {"allclose": 0, "why": first_line(error)}


def _cell(expected: dict | None, real: dict | None, key: str) -> str:
    if expected is None or real is None or key not in expected or key not in real:
        return "-"
    left, right = tensors_in(expected[key]), tensors_in(real[key])
    if len(left) != len(right):
        return json.dumps({"allclose": 0, "why": f"{many(len(right), 'tensor')}, not {len(left)}"})
    found = [_metrics(a, b) for a, b in zip(left, right)]
    return "\n".join(json.dumps(one) for one in found) or "-"


def _files(folder: str) -> dict[str, str]:
    if not os.path.isdir(folder):
        return {}
    return {name.removesuffix(".pt"): os.path.join(folder, name) for name in os.listdir(folder)}


def _read(path: str | None) -> dict | None:
    if path is None:
        return None
    try:
        content = load(path)
        if not isinstance(content, dict):
            raise TypeError("it holds no dump of a module")
        return content
    except Exception as error:  # a truncated file must not end the report
        print(f"{path} cannot be read: {first_line(error)}")
        return None


def _order(folder: str, names: set[str]) -> list[str]:
    """As they ran, then the rest by name."""
    path = os.path.join(folder, "expected", ORDER)
    ran: list[str] = []
    if os.path.isfile(path):
        with open(path, encoding="utf-8", errors="replace") as file:
            ran = file.read().splitlines()
    place: dict[str, int] = {}
    for i, name in enumerate(ran):
        place.setdefault(name, i)

    def key(name: str) -> tuple:
        layer, _, number = name.partition("..")
        turn = int(number) if number.isdecimal() and len(number) < 20 else 0
        return turn, place.get(layer, len(place)), name

    return sorted(names, key=key)


def _compare_rank(folder: str, rank: str) -> list[dict]:
    parts = {
        (side, phase): _files(os.path.join(folder, side, phase))
        for side in ("expected", "real")
        for phase in ("forward", "backward")
    }
    expected, real = set(parts["expected", "forward"]), set(parts["real", "forward"])
    for side, only in (("expected", expected - real), ("real", real - expected)):
        if only:
            print(f"rank{rank}: only in {side}: {', '.join(sorted(only))}")
    rows = []
    for i, name in enumerate(_order(folder, expected & real)):
        files = {key: _read(found.get(name)) for key, found in parts.items()}
        rows.append(
            {
                f"No.(rank{rank})": i,
                "layer_name": name,
                f"forward: output(atol={ATOL}, rtol={RTOL})": _cell(
                    files["expected", "forward"], files["real", "forward"], "output"
                ),
                f"backward: grad_input(atol={ATOL}, rtol={RTOL})": _cell(
                    files["expected", "backward"], files["real", "backward"], "grad_input"
                ),
            }
        )
    return rows


def compare_accuracy(dir: str) -> list[dict]:
    """Prints a table per rank, and returns its rows."""
    ranks = [m[1] for m in (re.fullmatch(r"rank(.+)", name) for name in os.listdir(dir)) if m]
    if not ranks:
        raise ValueError(f"{dir} holds no dump: a folder rank0 is expected in it")
    rows = []
    for rank in sorted(ranks):
        found = _compare_rank(os.path.join(dir, f"rank{rank}"), rank)
        print(dict_data_list_to_table(found))
        rows += found
    return rows
