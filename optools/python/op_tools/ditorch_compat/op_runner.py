# SPDX-License-Identifier: Apache-2.0
"""Runs a captured call again, on any device, and compares it with what was captured."""

from __future__ import annotations

import time
from collections.abc import Iterable

import torch

from op_tools.core import options, quiet
from op_tools.core.allowed_functions import check_words, resolve
from op_tools.core.containers import (
    copy_tensor,
    leaves,
    same_for_same,
    tensors_in,
    transform_contrainer,
)
from op_tools.ditorch_compat import ditorch_folders, op_names
from op_tools.ditorch_compat.attention_calls import cpu_form
from op_tools.ditorch_compat.compare_hook import lines
from op_tools.ditorch_compat.comparing import compare_result
from op_tools.ditorch_compat.reference_call import ReferenceCall, unshared
from op_tools.ditorch_compat.tool_hooks import synchronize

_DOUBLE = {
    torch.float16: torch.float64,
    torch.bfloat16: torch.float64,
    torch.float32: torch.float64,
    torch.complex64: torch.complex128,
}


def default_device() -> str:
    return options.accelerator() or "cpu"


class OpRunnerHook:
    """What is done around each run."""

    runner: OpRunner

    def before_forward(self) -> None:
        pass

    def after_forward(self) -> None:
        pass

    def before_backward(self) -> None:
        pass

    def after_backward(self) -> None:
        pass


class OpRunner:
    """A case: a folder of ditorch's, or a record of a capture. Raises CaptureError where it
    cannot be read, or names what is not called for a file."""

    def __init__(
        self,
        dir: str = ".",
        hook: OpRunnerHook | None = None,
        device: str | None = None,
        allow: Iterable[str] = (),
        seed: int = 0,
        case: ditorch_folders.Case | None = None,
    ) -> None:
        self.dir = dir
        self.hook = hook or OpRunnerHook()
        self.hook.runner = self
        self.device = torch.device(device or default_device())
        self.seed = seed
        self.case = case or ditorch_folders.load(dir)
        self.name = self.case.name
        self.fun = resolve(self.name, allow)
        check_words(self.fun, self.case.args, self.case.kwargs)
        self.output, self.grad_inputs = self.case.output, self.case.grad_inputs
        self.grad_outputs = self._to_device(self.case.grad_outputs)
        self.result: object = None

    def _to_device(self, values: object) -> object:
        """Tensors of another device than the cpu were all brought there; so are devices named."""

        def move(leaf: object) -> object:
            if isinstance(leaf, torch.Tensor):
                return copy_tensor(leaf, self.device)
            if isinstance(leaf, torch.device):
                return self.device if leaf.type != "cpu" else leaf
            return leaf

        with quiet():
            return transform_contrainer(values, same_for_same(move))

    def load_forward_input(self) -> None:
        """Fresh leaves: a run in place changes them."""
        self.args, self.kwargs = self._to_device((self.case.args, self.case.kwargs))
        if isinstance(self.kwargs.get("device"), str):
            self.kwargs["device"] = self.device
        self.leaves = tensors_in(self.args, self.kwargs)

    def run_forward(self) -> object:
        self.load_forward_input()
        with quiet():
            args, kwargs = unshared(self.name, self.args, self.kwargs)
        torch.manual_seed(self.seed)
        self.used = args
        self.hook.before_forward()
        function = cpu_form(self.fun) if self.device.type == "cpu" else self.fun
        self.result = function(*args, **kwargs)
        self.hook.after_forward()
        return self.result

    @property
    def has_backward(self) -> bool:
        return self.grad_outputs is not None and bool(self._pairs())

    def _pairs(self) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Results with a gradient, and the gradients captured for them."""
        made = tensors_in(self.result)
        given = list(leaves(self.grad_outputs))
        if len(given) != len(made):  # captured before gradients of all results were kept
            made = [tensor for tensor in made if tensor.grad_fn is not None]
        return [
            (a, b)
            for a, b in zip(made, given)
            if a.grad_fn is not None and isinstance(b, torch.Tensor) and a.shape == b.shape
        ]

    def run_backward(self) -> None:
        pairs = self._pairs()
        self.node_grads: tuple = ()
        node = pairs[0][0].grad_fn

        def keep(grad_inputs: tuple, grad_outputs: tuple) -> None:
            self.node_grads = grad_inputs

        handle = node.register_hook(keep)
        try:
            self.hook.before_backward()
            torch.autograd.backward([a for a, _ in pairs], [b for _, b in pairs])
            self.hook.after_backward()
        finally:
            handle.remove()

    @property
    def argument_grads(self) -> tuple:
        """One per tensor argument; of a tensor given twice, at its first place."""
        told: set[int] = set()
        grads = []
        for leaf in self.leaves:
            grads.append(leaf.grad if leaf.requires_grad and id(leaf) not in told else None)
            told.add(id(leaf))
        return tuple(grads)

    # ---- with what was captured ----------------------------------------------
    def check_forward(self) -> dict | None:
        """Compares with the captured output; None where there is none, or it is random."""
        if self.output is None or self.is_random:
            return None
        after = self.case.after
        written = [self.used[place] for place in after if place < len(self.used)]
        captured = [value for place, value in after.items() if place < len(self.used)]
        result = self.result
        if result is None and not tensors_in(self.output):  # all it does is write
            return compare_result(f"{self.name} written", written, captured)
        captured = [_like(list(leaves(self.output)), result), *captured]
        info = compare_result(f"{self.name} output", [result, *written], captured)
        return self._judge(info, "forward")

    def check_backward(self) -> dict | None:
        if self.grad_inputs is None or self.is_random:
            return None
        captured = list(leaves(self.grad_inputs))
        got = self.argument_grads if self.case.of_arguments else self.node_grads
        told = [(a, b) for a, b in zip(got, captured) if b is not None]
        if not told or len(got) != len(captured):
            return None
        info = compare_result(f"{self.name} grad", [a for a, _ in told], [b for _, b in told])
        return self._judge(info, "backward")

    @property
    def is_random(self) -> bool:
        """Or are its values not to be had again for another reason?"""
        return (
            self.case.random
            or op_names.is_stochastic_op(self.name)
            or op_names.is_uninitialised(self.name)
        )

    def _judge(self, info: dict, phase: str) -> dict:
        """A difference counts unless both are as near the float64 result as the cpu's own."""
        if not info["allclose"] and info["result_list"] and self._is_rounding(phase):
            info["allclose"], info["error_info"] = True, "within rounding of float64's result"
        return info

    def _on_cpu(self, phase: str, dtypes: dict) -> list:
        """Results, or gradients, of the call on the cpu in these dtypes."""
        case = self.case
        reference = ReferenceCall(self.name, cpu_form(self.fun), case.args, case.kwargs, dtypes)
        made = tensors_in(reference.run())
        if phase == "forward":
            return made
        return list(reference.gradients(tuple(leaves(case.grad_outputs))))

    def _is_rounding(self, phase: str) -> bool:
        if phase == "backward" and not self.case.of_arguments:
            return False
        captured = self.output if phase == "forward" else self.grad_inputs
        return self.is_near_exact(phase, list(leaves(captured)))

    def is_near_exact(self, phase: str, others: list | None = None) -> bool:
        """Are the results (and `others`, one each) as near float64's as the cpu's own are?"""
        try:
            with quiet():
                exact, usual = self._on_cpu(phase, _DOUBLE), self._on_cpu(phase, {})
        except Exception:  # no reference, no excuse
            return False
        got = tensors_in(self.result) if phase == "forward" else list(self.argument_grads)
        if others is None:
            others = got
        elif phase == "forward":
            others = tensors_in(others)
        rows = [row for row in zip(got, others, usual, exact) if all(t is not None for t in row)]
        return bool(rows) and all(_is_near(*row) for row in rows)


def _is_near(got: torch.Tensor, other: torch.Tensor, usual: torch.Tensor, exact: torch.Tensor):
    """Are both at most four times as far from the exact result as the cpu, or two roundings?"""
    if not got.is_floating_point() or not got.shape == exact.shape == other.shape:
        return False
    exact = exact.detach()

    def distance(tensor: torch.Tensor) -> float:
        return (tensor.detach().cpu().double() - exact).abs().max().item()

    with quiet():
        rounding = torch.finfo(got.dtype).eps * exact.abs().max().item()
        allowed = 4 * distance(usual) + 2 * rounding
        return distance(got) <= allowed and distance(other) <= allowed


def _like(captured: list, result: object) -> object:
    """Captured leaves in the structure of a result, where their number is the same."""
    if len(list(leaves(result))) != len(captured):
        return captured
    following = iter(captured)
    if isinstance(result, dict):  # keys are leaves too
        return captured
    return transform_contrainer(result, lambda leaf: next(following))


class SyncExecuteTimer(OpRunnerHook):
    """Times each run by the host's clock, the device idle before and after."""

    def __init__(self, only_forward: bool = False) -> None:
        self.width = 0 if only_forward else 8

    def _begin(self, values: object) -> None:
        synchronize(values)
        self.start = time.perf_counter()

    def _end(self, phase: str, values: object) -> None:
        synchronize(values)
        elapsed = (time.perf_counter() - self.start) * 1e3
        name = self.runner.name
        print(f"SyncExecuteTimer: {name} {phase:<{self.width}} elasped {elapsed:.8f} ms")

    def before_forward(self) -> None:
        self._begin((self.runner.args, self.runner.kwargs))

    def after_forward(self) -> None:
        self._end("forward", self.runner.result)

    def before_backward(self) -> None:
        self._begin(self.runner.result)

    def after_backward(self) -> None:
        self._end("backward", self.runner.result)


class OpAccyChecker(OpRunnerHook):
    """Compares each run with the same call on the cpu in a wider dtype."""

    def __init__(self) -> None:
        self.bad = 0

    def before_forward(self) -> None:
        runner = self.runner
        self.reference = ReferenceCall(runner.name, runner.fun, runner.args, runner.kwargs)

    def after_forward(self) -> None:
        runner = self.runner
        if runner.is_random:
            print(f"OpAutoCompareHook: {runner.name:<50} is random: its values are not compared")
            self.reference = None
            return
        torch.manual_seed(runner.seed)
        self._tell(compare_result(runner.name, runner.result, self.reference.run()), None)

    def after_backward(self) -> None:
        if self.reference is None:
            return
        runner = self.runner
        expected = self.reference.gradients(tuple(leaves(runner.grad_outputs)))
        told = [
            (i, a, b)
            for i, (a, b) in enumerate(zip(runner.argument_grads, expected))
            if a is not None
        ]
        info = compare_result(
            f"{runner.name} grad", [a for _, a, _ in told], [b for _, _, b in told]
        )
        self._tell(info, [f" {i}th input grad" for i, _, _ in told])

    def _tell(self, info: dict, names: list[str] | None) -> None:
        if names is None:
            print("\n".join(lines(self.runner.name, info)))
        for name, row in zip(names or [], info["result_list"]):
            print("\n".join(lines(self.runner.name + name, {**info, "result_list": [row]})))
        if info["allclose"]:
            return
        phase = "forward" if names is None else "backward"
        if self.runner.is_near_exact(phase):
            print(f"{self.runner.name}: {phase} is within rounding of float64's result")
        else:
            self.bad += 1
