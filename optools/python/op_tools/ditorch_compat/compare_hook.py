# SPDX-License-Identifier: Apache-2.0
"""ditorch's comparison of an API call with the same call on the cpu, and its lines."""

from __future__ import annotations

import os

from op_tools.core.containers import tensors_in
from op_tools.core.tables import dict_data_list_to_table
from op_tools.ditorch_compat import op_names
from op_tools.ditorch_compat.base_hook import BaseHook
from op_tools.ditorch_compat.capture_hook import OLD_FOLDER, CallFolder
from op_tools.ditorch_compat.comparing import compare_result
from op_tools.ditorch_compat.ditorch_folders import OF_ARGUMENTS
from op_tools.ditorch_compat.reference_call import ReferenceCall
from op_tools.ditorch_compat.save_op_args import host_copy, serialize_args_to_dict
from op_tools.ditorch_compat.tool_hooks import argument_rows, is_old, told

_WIDE = 50


def old_line(name: str, suffix: str, close: bool, difference: float) -> str:
    """`OpAutoCompareHook: <name> <suffix> allclose: True    max_diff:  0.000000060`."""
    label = f"{name:<{_WIDE - len(suffix)}}{suffix}"
    return f"OpAutoCompareHook: {label} allclose: {close}    max_diff: {difference:20.9f}"


def lines(name: str, info: dict, suffixes: list[str] | None = None) -> list[str]:
    """A comparison in the short form, a line per leaf."""
    rows = info["result_list"]
    if not rows:
        return [old_line(name, "", info["allclose"], info["max_abs_diff"])]
    if suffixes is None:
        suffixes = [f" {i}th" for i in range(len(rows))] if len(rows) > 1 else [""]
    return [
        old_line(name, suffix, row["allclose"], float(row["max_abs_diff"]))
        for suffix, row in zip(suffixes, rows)
    ]


class OpAutoCompareHook(BaseHook):
    family = "AUTOCOMPARE"
    label = "OpAutoCompareHook"

    def is_should_apply(self, *args, **kwargs):
        return not (
            op_names.is_random_number_gen_op(self.name)
            or op_names.is_uninitialised(self.name)
            or op_names.moved_to(self.name) is not None
            or self.name == "torch.Tensor.untyped_storage"
        )

    def before_call_op(self, *args, **kwargs):
        self.given = serialize_args_to_dict(*args, **kwargs)
        self.given_old = told(args, kwargs) if is_old() else None
        self.device_input = (host_copy(args), host_copy(kwargs))
        self.reference = ReferenceCall(self.name, self.func, args, kwargs)
        self.cpu_input = (host_copy(self.reference.args), host_copy(self.reference.kwargs))
        self.folder: CallFolder | None = None

    def after_call_op(self, result):
        if op_names.is_stochastic_op(self.name) and not self._is_deterministic():
            self._tell("is random: its values are not compared", None, result)
            return
        try:
            expected = self.reference.run()
        except Exception as error:  # the cpu may lack what the device has
            self._tell(f"has no reference: {error}", None, result)
            return
        inputs = tensors_in(self.args, self.kwargs)
        before = compare_result(f"{self.name} input", inputs, self.reference.after)
        info = compare_result(f"{self.name} output", result, expected)
        self.info = info
        self._tell("", info, result, before)
        self._keep(info)
        self.device_output = host_copy((result,))
        if not (info["allclose"] and before["allclose"]):
            self._save_forward()

    def _is_deterministic(self) -> bool:
        """A dropout that drops nothing computes what any other operator does."""
        plain = [value for value in self.args[1:] if isinstance(value, (float, bool))]
        off = self.kwargs.get("training", True) is False or False in plain[1:2]
        share = self.kwargs.get("p", self.kwargs.get("dropout_p", plain[0] if plain else None))
        none_by_default = self.name.endswith("scaled_dot_product_attention")
        return off or share == 0 or (share is None and none_by_default)

    def backward(self, grad_inputs, grad_outputs):
        if self.reference.result is None:
            return
        expected = self.reference.gradients(grad_outputs)
        given = [(i, a, b) for i, (a, b) in enumerate(zip(grad_inputs, expected)) if a is not None]
        info = compare_result(
            f"{self.name} grad", [a for _, a, _ in given], [b for _, _, b in given]
        )
        if is_old():
            suffixes = [f" (ins[{i}].grad)" for i, _, _ in given]
            for suffix, row in zip(suffixes, info["result_list"]):
                difference = float(row["max_abs_diff"])
                print(old_line(self.name + suffix, "", row["allclose"], difference))
        else:
            rows = argument_rows(
                ("grad_outputs", serialize_args_to_dict(*grad_outputs)),
                ("grad_inputs", serialize_args_to_dict(*grad_inputs)),
                ("grad_inputs(cpu)", serialize_args_to_dict(*expected)),
            )
            self._print(rows, info)
        self._keep(info)
        if not info["allclose"]:
            self._save_backward(grad_inputs, grad_outputs, expected)

    # ---- what is told --------------------------------------------------------
    def _tell(self, why: str, info: dict | None, result: object, before: dict | None = None):
        if is_old():
            self._tell_old(why, info, result)
            return
        parts = [("inputs", self.given), ("outputs", serialize_args_to_dict(result))]
        if info is None:
            print(f"autocompare    {self.name} {why}")
            return
        reference = self.reference
        parts.append(("inputs(cpu)", serialize_args_to_dict(*reference.args, **reference.kwargs)))
        parts.append(("outputs(cpu)", serialize_args_to_dict(reference.result)))
        self._print(argument_rows(*parts), info, before)

    def _print(self, rows: list[dict], info: dict, before: dict | None = None) -> None:
        cast = {str(a): str(b) for a, b in self.reference.dtypes.items()}
        compared = (before["result_list"] if before else []) + info["result_list"]
        print(
            f"\n\nautocompare    {self.name} forward_id: {self.forward_id}    "
            f"cpu_dtype_cast_info(from:to): {cast}\n{self.place}\n{dict_data_list_to_table(rows)}"
        )
        if compared:
            print(dict_data_list_to_table(compared))
        if info["error_info"]:
            print(info["error_info"])

    def _tell_old(self, why: str, info: dict | None, result: object) -> None:
        head = f"OpAutoCompareHook: {self.name:<{_WIDE}} "
        if info is None:
            print(f"{head}{why}")
            return
        print("\n".join(lines(self.name, info)))
        if not info["allclose"]:
            print(f"{head}input: {self.given_old}")
            print(f"{head}output: {told((result,))['args']}")

    def _keep(self, info: dict) -> None:
        if self.tool is not None:
            self.tool.keep_rows(self.forward_id, info["result_list"])

    # ---- what is saved -------------------------------------------------------
    def _save(self, what: str, sides: dict[str, tuple[tuple, dict]]) -> None:
        if self.folder is None:
            self.folder = CallFolder(self.name, self.forward_id, "autocompare")
            if is_old():
                self.folder.path = os.path.join(OLD_FOLDER, self.name, str(self.forward_id))
        for side, (args, kwargs) in sides.items():
            try:
                self.folder.inside(side).save(what, args, kwargs)
            except Exception as error:  # a full disk or a value that cannot be written
                print(f"{self.name}: {side} {what} could not be saved: {error}")

    def _save_forward(self) -> None:
        self._save("input", {"device": self.device_input, "cpu": self.cpu_input})
        expected = (self.reference.result,)
        self._save("output", {"device": (self.device_output, {}), "cpu": (expected, {})})

    def _save_backward(self, grad_inputs: tuple, grad_outputs: tuple, expected: tuple) -> None:
        if self.folder is None:  # gradients without the call are no case to run again
            self._save_forward()
        ours = {OF_ARGUMENTS: True}
        self._save("grad_inputs", {"device": (grad_inputs, ours), "cpu": (expected, ours)})
        self._save("grad_outputs", {"device": (grad_outputs, {}), "cpu": (grad_outputs, {})})
