# SPDX-License-Identifier: Apache-2.0
"""What a script's steps gave, as bits: results of its models, losses, gradients, parameters.

For `op-tools self-check`: the script is not asked to tell. Models are modules that no module calls,
a loss is what backward() starts from, gradients are those of the models' parameters after it,
parameters those an optimizer has just changed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable

import torch
from torch import nn
from torch.nn.modules import module as hooks
from torch.optim import optimizer as optimizers
from torch.utils._pytree import tree_leaves

from op_tools.core import _C, quiet


class StepBits:
    """From begin() to end(); the time taken to look at tensors is not counted."""

    def __init__(self) -> None:
        self.bits: list[list] = []  # [what it is, dtype, shape, hash]
        self.steps = 0  # calls of backward
        self.seconds = 0.0
        self._looking = 0.0
        self._depth = threading.local()
        self._models: dict[int, nn.Module] = {}
        self._undo: list[Callable[[], None]] = []
        self._started: float | None = None

    def begin(self) -> None:
        self._undo += [
            hooks.register_module_forward_pre_hook(self._enter).remove,
            hooks.register_module_forward_hook(self._leave, always_call=True).remove,
            optimizers.register_optimizer_step_post_hook(self._stepped).remove,
        ]
        self._wrap("backward", self._backward)
        self._wrap("grad", self._grad)
        self._started = time.perf_counter()

    def end(self) -> None:
        if self._started is None:
            return
        if torch.accelerator.is_available():
            torch.accelerator.synchronize()
        self.seconds = time.perf_counter() - self._started - self._looking
        for undo in self._undo:
            undo()

    def _wrap(self, name: str, around: Callable) -> None:
        plain = getattr(torch.autograd, name)

        def call(*args: object, **kwargs: object) -> object:
            return around(plain, *args, **kwargs)

        setattr(torch.autograd, name, call)
        self._undo.append(lambda: setattr(torch.autograd, name, plain))

    # ---- where there is something to look at -----------------------------------------
    def _enter(self, module: nn.Module, args: tuple) -> None:
        self._depth.now = getattr(self._depth, "now", 0) + 1

    def _leave(self, module: nn.Module, args: tuple, result: object) -> None:
        # Called when a module raised, too; the one that was running when begin() came is not ours.
        self._depth.now = max(getattr(self._depth, "now", 0) - 1, 0)
        if self._depth.now == 0:
            self._models[id(module)] = module
            self._look(f"result of {type(module).__name__}", tree_leaves(result))

    def _backward(self, plain: Callable, tensors: object, *args: object, **kwargs: object) -> None:
        self._look("loss", tree_leaves(tensors))
        plain(tensors, *args, **kwargs)
        self.steps += 1
        for module in list(self._models.values()):
            for name, parameter in module.named_parameters():
                self._look(f"gradient of {name}", [parameter.grad])

    def _grad(self, plain: Callable, outputs: object, *args: object, **kwargs: object) -> object:
        self._look("loss", tree_leaves(outputs))
        found = plain(outputs, *args, **kwargs)
        self._look("gradient", tree_leaves(found))
        return found

    def _stepped(self, optimizer: torch.optim.Optimizer, *_: object) -> None:
        for group in optimizer.param_groups:
            self._look("parameter", group["params"])

    def _look(self, what: str, values: Iterable[object]) -> None:
        begin = time.perf_counter()
        step = f"step {self.steps}, {what}"
        for tensor in values:
            if isinstance(tensor, torch.Tensor):
                self.bits.append([step, *bits_of(tensor)])
        self._looking += time.perf_counter() - begin


def bits_of(tensor: torch.Tensor) -> tuple[str, list[int], str]:
    """dtype, sizes and a hash of the values' bits."""
    with quiet():
        host = tensor.detach()
        if host.layout != torch.strided:
            host = host.to_dense()
        host = host.resolve_conj().resolve_neg().cpu()
        return str(host.dtype), list(host.shape), _C.content_hash(host)
