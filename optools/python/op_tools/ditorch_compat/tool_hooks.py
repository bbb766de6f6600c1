# SPDX-License-Identifier: Apache-2.0
"""ditorch's lines of OpObserve, OpOverflowCheck, OpFallback, OpDtypeCast and OpTimeMeasure."""

from __future__ import annotations

import time

import torch

from op_tools.core import options
from op_tools.core.containers import tensors_in
from op_tools.core.tables import dict_data_list_to_table, packect_data_to_dict_list
from op_tools.ditorch_compat import op_names
from op_tools.ditorch_compat.base_hook import BaseHook, form
from op_tools.ditorch_compat.comparing import compute_tensor_features
from op_tools.ditorch_compat.save_op_args import (
    describe_call,
    describe_tensor_2024_08,
    serialize_args_to_dict,
)

_WIDE = 50


def is_old() -> bool:
    return form() == "ditorch-2024-08"


def told(args: tuple, kwargs: dict | None = None) -> dict:
    """A call as the August 2024 lines show it."""
    return describe_call(describe_tensor_2024_08, args, kwargs)


def argument_rows(*parts: tuple[str, dict]) -> list[dict]:
    return [row for label, told in parts for row in packect_data_to_dict_list(label, told)]


class _Described(BaseHook):
    """Describes arguments before the call: an in-place operator changes them."""

    def before_call_op(self, *args, **kwargs):
        self.given = serialize_args_to_dict(*args, **kwargs)
        self.given_old = told(args, kwargs) if is_old() else None

    def rows(self, result: object, labels: tuple[str, str] = ("inputs", "outputs")) -> list[dict]:
        return argument_rows((labels[0], self.given), (labels[1], serialize_args_to_dict(result)))

    def print_call(self, head: str, *tables: list[dict]) -> None:
        parts = [str(dict_data_list_to_table(rows)) for rows in tables if rows]
        print("\n".join(["\n", head, self.place, *parts]))


class OpObserveHook(_Described):
    family = "OBSERVE"
    label = "OpObserveHook"

    def after_call_op(self, result):
        if is_old():
            print(
                f"{self.label}: {self.name:<{_WIDE}} input: {self.given_old} output: {told((result,))}"
            )
        else:
            self.print_call(f"{self.name}  {self.forward_id}", self.rows(result))

    def after_raise(self):
        self.after_call_op("raised")


def _feature_rows(label: str, values: object) -> list[dict]:
    found = compute_tensor_features(values)
    return [{"name": f"{label}[{i}]", **row} for i, row in enumerate(found)]


class OpOverflowCheckHook(_Described):
    family = "OVERFLOW_CHECK"
    label = "OpOverflowCheckHook"

    def before_call_op(self, *args, **kwargs):
        super().before_call_op(*args, **kwargs)
        self.features = _feature_rows("input", (args, kwargs))

    def after_call_op(self, result):
        features = self.features + _feature_rows("output", result)
        self.print_call(
            f"{self.name}    forward_id: {self.forward_id}", self.rows(result), features
        )

    def backward(self, grad_inputs, grad_outputs):
        rows = argument_rows(
            ("grad_outputs", serialize_args_to_dict(*grad_outputs)),
            ("grad_inputs", serialize_args_to_dict(*grad_inputs)),
        )
        features = _feature_rows("grad_inputs", grad_inputs)
        features += _feature_rows("grad_outputs", grad_outputs)
        self.print_call(f"{self.name}    forward_id: {self.forward_id}", rows, features)


def _on_cpu(described: object) -> object:
    """Descriptions of the copies a fallback computes with: where they lay is not known."""
    if isinstance(described, dict):
        if "data_ptr" in described:
            kept = {key: value for key, value in described.items() if key != "data_ptr"}
            return {**kept, "device": "cpu"}
        if "data" in described and "layout" in described:
            kept = {key: value for key, value in described.items() if key != "data"}
            return {**kept, "device": "cpu"}
        return {key: _on_cpu(value) for key, value in described.items()}
    if isinstance(described, (tuple, list)):
        return type(described)(_on_cpu(value) for value in described)
    return described


class OpFallbackHook(_Described):
    family = "FALLBACK"
    label = "OpFallbackHook"

    def is_should_apply(self, *args, **kwargs):
        return self.name != "torch.Tensor.cpu"

    def run(self, *args, **kwargs):
        from op_tools.ditorch_compat.features import run_as

        return run_as("fallback", self.name, self.func, args, kwargs)

    def after_call_op(self, result):
        if is_old():
            made = told((result,))["args"]
            head = f"{self.label}: {self.name:<{_WIDE}} "
            print(f"{head}input: {self.given_old}")
            print(f"{head}output: {made} cpu output: {_on_cpu(made)} dtype_convert_back_dict:{{}}")
            return
        made = serialize_args_to_dict(result)
        rows = argument_rows(
            ("input(device)", self.given),
            ("input(cpu)", _on_cpu(self.given)),
            ("output(device)", made),
            ("output(cpu)", _on_cpu(made)),
        )
        self.print_call(f"fallback    {self.name}    forward_id: {self.forward_id}  ", rows)


class OpDtypeCastHook(_Described):
    family = "DTYPE_CAST"
    label = "OpDtypeCastHook"

    def is_should_apply(self, *args, **kwargs):
        return not (
            op_names.is_view_op(self.name) or op_names.is_dtype_cast_op(self.name, *args, **kwargs)
        )

    def run(self, *args, **kwargs):
        from op_tools.ditorch_compat.features import run_as

        return run_as("cast_dtype", self.name, self.func, args, kwargs)

    def after_call_op(self, result):
        from op_tools.tools.dtype_cast import DEFAULT, VARIABLE, parse_dtypes

        config = options.text(VARIABLE, DEFAULT)
        dtypes = parse_dtypes(config)
        rows = []
        for i, tensor in enumerate(tensors_in(self.args, self.kwargs)):
            if tensor.dtype in dtypes:
                rows.append(self._row(f"input[{i}]", tensor.dtype, dtypes[tensor.dtype], config))
        if not rows:
            return
        for i, tensor in enumerate(tensors_in(result)):
            if tensor.dtype in dtypes:
                rows.append(self._row(f"output[{i}]", dtypes[tensor.dtype], tensor.dtype, config))
        self.print_call(f"cast_dtype    {self.name}   forward_id: {self.forward_id}", rows)

    def _row(self, target: str, before: torch.dtype, after: torch.dtype, config: str) -> dict:
        action = f"{before} -> {after}"
        return {"name": self.name, "target": target, "action": action, "config": config}


def device_kinds(values: object) -> set[str]:
    """Types of the devices these tensors are on, where a host has to wait for them."""
    return {tensor.device.type for tensor in tensors_in(values)} - {"cpu", "meta"}


def synchronize_kinds(kinds: set[str]) -> None:
    for kind in kinds:
        getattr(torch, kind).synchronize()


def synchronize(values: object) -> None:
    synchronize_kinds(device_kinds(values))


class OpTimeMeasureHook(_Described):
    """By the host's clock, the device idle before and after, as ditorch has it."""

    family = "TIME_MEASURE"
    label = "OpTimeMeasureHook"

    def before_call_op(self, *args, **kwargs):
        super().before_call_op(*args, **kwargs)
        synchronize((args, kwargs))
        self.start = time.perf_counter()

    def after_call_op(self, result):
        synchronize(result)
        self.kinds = device_kinds(result)
        self._tell("forward", self.start, "input", self.given, "output", (result,))

    def before_backward(self):
        synchronize_kinds(self.kinds)
        self.start_backward = time.perf_counter()

    def backward(self, grad_inputs, grad_outputs):
        synchronize(grad_inputs)
        given = serialize_args_to_dict(*grad_inputs)
        self.given_old = told((grad_inputs,)) if is_old() else None
        self._tell(
            "backward", self.start_backward, "grad_inputs", given, "grad_outputs", grad_outputs
        )

    def _tell(self, phase, start, label, given, made_label, made) -> None:
        elapsed = (time.perf_counter() - start) * 1e3
        described = serialize_args_to_dict(*made)
        if self.tool is not None:
            self.tool.describe(self.forward_id, **{label: given, made_label: described})
        if is_old():
            shown = told(made if phase == "forward" else (made,))
            print(
                f"{self.label}: {self.name:<30} {phase + ' elasped:':<17} {elapsed:.8f} ms     "
                f"{label}: {self.given_old} output: {shown}"
            )
            return
        timed = {
            "name": self.name,
            "forward_id": self.forward_id,
            f"{phase}_elasped": f"{elapsed:.8f}",
            "unit": "ms",
        }
        self.print_call(
            f"{self.name}    forward_id: {self.forward_id}",
            argument_rows((label, given), (made_label, described)),
            [timed],
        )
