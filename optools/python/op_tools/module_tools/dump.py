# SPDX-License-Identifier: Apache-2.0
"""Dumps what goes into and comes out of every module of a model."""

from __future__ import annotations

import itertools
import os
import threading
from typing import Any

import torch
from torch import nn

from op_tools.core import options
from op_tools.core.files import write_tensors, write_whole
from op_tools.ditorch_compat.gradient_watch import GradientWatch
from op_tools.ditorch_compat.save_op_args import host_copy

NAMES = "modules_full_name.txt"
ORDER = "modules_full_name_run.txt"


def rank_folder(data_path: str) -> str:
    return os.path.join(data_path, f"rank{options.rank() or 0}")


def load(path: str) -> dict:
    """A dumped file; nothing in it is run."""
    return torch.load(path, map_location="cpu", weights_only=True)


class CompLayerAcc:
    """insert_hook() makes the model dump; remove_hook() ends it.

    Files: <data_path>/rank<RANK>/{expected|real}/{forward,backward}/<module>.pt. The n-th call of
    a module in a run (a second step, or a layer used twice) is <module>..<n>.pt. With
    is_fixed_input each module computes on the expected run's input, so that a difference is its own.
    """

    def __init__(
        self,
        model: nn.Module,
        is_dump_benchmark: bool = True,
        is_fixed_input: bool = False,
        data_path: str = "./data",
    ) -> None:
        self.model = model
        self.side = "expected" if is_dump_benchmark else "real"
        self.is_fixed_input = is_fixed_input
        self.data_path = data_path
        root = type(model).__name__
        self.names = {
            module: f"{root}.{path}" if path else root for path, module in model.named_modules()
        }
        self._here = threading.local()  # .calls: those under way in this thread
        self._counts: dict[str, int] = {}
        self._order: list[str] = []
        self._is_order_written = False
        self._handles: list = []
        self._lock = threading.RLock()

    @property
    def folder(self) -> str:
        return os.path.join(rank_folder(self.data_path), self.side)

    def insert_hook(self) -> nn.Module:
        self.remove_hook()
        os.makedirs(self.folder, exist_ok=True)
        self._write(NAMES, self.names.values())
        for module in self.names:
            self._handles.append(module.register_forward_pre_hook(self._before, with_kwargs=True))
            self._handles.append(module.register_forward_hook(self._after, with_kwargs=True))
        return self.model

    def remove_hook(self) -> None:
        with self._lock:
            for handle in self._handles:
                handle.remove()
            self._handles.clear()

    def _give_up(self, error: Exception) -> None:
        """Said once; the training goes on."""
        with self._lock:
            if self._handles:
                print(
                    f"CompLayerAcc dumps no more into {self.folder}: {type(error).__name__}: {error}"
                )
                self.remove_hook()

    def _write(self, name: str, lines) -> None:
        write_whole(os.path.join(self.folder, name), "".join(f"{line}\n" for line in lines))

    def _path(self, folder: str, phase: str, name: str, number: int) -> str:
        """The first call has the plain name, as ditorch's files have."""
        # Two dots: <module>.1 is the name of a module in a Sequential.
        suffix = f"..{number}" if number else ""
        return os.path.join(folder, phase, f"{name.replace(os.sep, '_')}{suffix}.pt")

    def _save(self, phase: str, name: str, number: int, **content: object) -> None:
        path = self._path(self.folder, phase, name, number)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        write_tensors(path, {"layer_name": name, **host_copy(content)})

    def _before(self, module: nn.Module, args: tuple, kwargs: dict):
        try:
            return self._begin(module, args, kwargs)
        except Exception as error:
            self._give_up(error)
            return None

    def _after(self, module: nn.Module, args: tuple, kwargs: dict, output: object) -> None:
        try:
            self._end(module, output)
        except Exception as error:
            self._give_up(error)

    def _begin(self, module: nn.Module, args: tuple, kwargs: dict):
        name = self.names.get(module)
        if name is None:  # a replica of DataParallel's
            return None
        with self._lock:
            number = self._counts.get(name, 0)
            self._counts[name] = number + 1
            self._order.append(name)
        if self.is_fixed_input:
            args, kwargs = self._expected_input(name, number, args, kwargs)
        watch = GradientWatch(args, kwargs, most_nodes=1 << 20)
        calls = self._here.__dict__.setdefault("calls", [])
        calls.append((module, number, watch, host_copy((args, kwargs))))
        return args, kwargs

    def _expected_input(self, name: str, number: int, args: tuple, kwargs: dict) -> tuple:
        expected = os.path.join(rank_folder(self.data_path), "expected")
        path = self._path(expected, "forward", name, number)
        if not os.path.exists(path):
            return args, kwargs
        dumped = load(path)
        return _in_place_of(args, dumped["input"]), _in_place_of(kwargs, dumped.get("kwargs", {}))

    def _end(self, module: nn.Module, output: object) -> None:
        name, calls = self.names.get(module), self._here.__dict__.get("calls", [])
        while calls and calls[-1][0] is not module:  # those raised
            calls.pop()
        if name is None or not calls:
            return
        _, number, watch, (given, named) = calls.pop()
        self._save("forward", name, number, input=given, kwargs=named, output=output)

        def backward(grad_inputs: tuple, grad_outputs: tuple) -> None:
            if not self._handles:
                return
            with self._lock:
                if not self._is_order_written:
                    self._is_order_written = True
                    self._write(ORDER, self._order)
            self._save("backward", name, number, grad_input=grad_inputs, grad_output=grad_outputs)

        watch.attach(output, backward, failed=self._give_up, without_inputs=True)


def _in_place_of(given: Any, dumped: Any) -> Any:
    """The dumped tensors where the given ones are, and part of the same graph; what was not dumped
    stays as it is."""
    if isinstance(given, dict) and isinstance(dumped, dict):
        return {key: _in_place_of(value, dumped.get(key)) for key, value in given.items()}
    if type(given) in (tuple, list) and isinstance(dumped, (tuple, list)):
        pairs = itertools.zip_longest(given, dumped[: len(given)])
        return type(given)(_in_place_of(a, b) for a, b in pairs)
    if not isinstance(given, torch.Tensor) or not isinstance(dumped, torch.Tensor):
        return given
    value = dumped.to(given.device, given.dtype).detach()
    if given.shape != value.shape or not given.requires_grad:
        return value if given.shape == value.shape else given
    return given + (value - given).detach()
