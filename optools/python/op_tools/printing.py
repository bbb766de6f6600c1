# SPDX-License-Identifier: Apache-2.0
"""What tools print, their own short form and ditorch's."""

from __future__ import annotations

import traceback

import torch

from op_tools.core import _C, quiet
from op_tools.pretty_print import dict_data_list_to_table, packect_data_to_dict_list
from op_tools.save_op_args import serialize_args_to_dict


def describe_tensors(entries: list[dict]) -> str:
    shown = [
        "opaque" if e["opaque"] else f"{e['dtype']}{list(e['shape'])}".replace(" ", "")
        for e in entries[:6]
    ]
    more = [f"... {len(entries)} in all"] if len(entries) > 6 else []
    return "(" + ", ".join(shown + more) + ")"


def print_counted(tool: str, did: str, counts: list[tuple[str, str, int]]) -> None:
    acted = sorted((-count, op) for op, why, count in counts if not why)
    for count, op in acted:
        print(f"{tool}: {op:<44} {-count} calls {did}")
    passed: dict[str, int] = {}
    for _, why, count in counts:
        if why:
            passed[why] = passed.get(why, 0) + count
    for why, count in sorted(passed.items(), key=lambda item: -item[1]):
        print(f"{tool}: {count} calls let pass: {why}")
    print(f"{tool}: {len(acted)} operators, {-sum(c for c, _ in acted)} calls {did}")


def user_location() -> str:
    """`file:line function: source` of the innermost frame outside torch and these tools."""
    here, torch_folder = __file__.rsplit("/", 1)[0], torch.__file__.rsplit("/", 1)[0]
    for frame in reversed(traceback.extract_stack()):
        if not frame.filename.startswith((here, torch_folder)):
            return f"{frame.filename}:{frame.lineno} {frame.name}: {frame.line}"
    return "-"


def _argument_rows(args: tuple, kwargs: dict | None, result: object) -> list[dict]:
    given = serialize_args_to_dict(*args, **(kwargs or {}))
    made = serialize_args_to_dict(result)
    return packect_data_to_dict_list("inputs", given) + packect_data_to_dict_list("outputs", made)


def print_api_call(name: str, call: int, args: tuple, kwargs: dict | None, head: str):
    """ditorch's lines of an applied call; printed once the result is there."""
    place = user_location()

    def done(result: object) -> None:
        with quiet():
            rows = _argument_rows(args, kwargs, result)
            print(f"\n\n{head}\n{place}\n{dict_data_list_to_table(rows)}")

    return done


def _feature_row(name: str, tensor: torch.Tensor) -> dict:
    row = {"name": name, "inf_or_nan": False, **dict.fromkeys("min max mean std norm".split(), "-")}
    if tensor.layout != torch.strided or tensor.numel() == 0 or tensor.is_quantized:
        return row
    stats = _C.statistics(tensor.detach().cpu())
    count, finite = stats["count"], stats["count"] - stats["nan"] - stats["+inf"] - stats["-inf"]
    mean = stats["sum"] / finite if finite else float("nan")
    variance = max(stats["squares"] / finite - mean * mean, 0.0) if finite else float("nan")
    correction = finite / (finite - 1) if finite > 1 else float("nan")
    row.update(
        inf_or_nan=finite != count,
        min=stats["min"],
        max=stats["max"],
        mean=mean,
        std=(variance * correction) ** 0.5,
        norm=stats["squares"] ** 0.5,
    )
    return row


def _feature_rows(label: str, values: object) -> list[dict]:
    leaves = torch.utils._pytree.tree_leaves(values)
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    return [_feature_row(f"{label}[{i}]", tensor) for i, tensor in enumerate(tensors)]


def print_overflow(name: str, call: int, args: tuple, kwargs: dict | None):
    place = user_location()
    with quiet():
        before = _feature_rows("input", (args, kwargs))

    def done(result: object) -> None:
        with quiet():
            rows = _argument_rows(args, kwargs, result)
            features = before + _feature_rows("output", result)
            print(
                f"\n\n{name}    forward_id: {call}\n{place}\n{dict_data_list_to_table(rows)}\n"
                f"{dict_data_list_to_table(features)}"
            )

    return done
