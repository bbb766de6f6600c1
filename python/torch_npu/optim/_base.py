# SPDX-License-Identifier: Apache-2.0
"""The base of the fused optimizers: parameters in groups for one call each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor


def check_range(name: str, value: float, least: float, most: float = float("inf")) -> None:
    """Refuses a hyperparameter outside [least, most]."""
    if not least <= value <= most:
        upper = "" if most == float("inf") else f" and at most {most}"
        raise ValueError(f"Invalid {name} value: {value}; it must be at least {least}{upper}")


def _flat(tensors: list[Tensor]) -> Tensor:
    return torch.cat([t.detach().reshape(-1) for t in tensors])


class NpuFusedOptimizerBase(torch.optim.Optimizer):
    """A torch optimizer whose steps are multi-tensor calls.

    Subclasses either are a torch optimizer with its fused or foreach kernels, or implement
    `_update`, which gets the tensors of one group, device and dtype as lists.
    """

    def _update(
        self, group: dict[str, Any], params: list[Tensor], grads: list[Tensor], states: list[dict]
    ) -> None:
        raise NotImplementedError

    def _start(self, group: dict[str, Any], param: Tensor) -> dict[str, Any]:
        """The state of a parameter before its first step."""
        raise NotImplementedError

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for params in self._alike([p for p in group["params"] if p.grad is not None]):
                if any(p.grad.is_sparse for p in params):
                    raise RuntimeError(
                        f"{type(self).__name__} does not support sparse gradients, "
                        "please consider SparseAdam instead"
                    )
                for p in params:
                    if not self.state[p]:
                        self.state[p].update(self._start(group, p))
                self._update(
                    group, params, [p.grad for p in params], [self.state[p] for p in params]
                )
        return loss

    @staticmethod
    def _alike(tensors: list[Tensor]) -> Iterator[list[Tensor]]:
        """Lists of one device and dtype each, in order of appearance."""
        groups: dict[tuple[torch.device, torch.dtype], list[Tensor]] = {}
        for tensor in tensors:
            groups.setdefault((tensor.device, tensor.dtype), []).append(tensor)
        yield from groups.values()

    def _with_grad(self) -> list[Tensor]:
        return [p for g in self.param_groups for p in g["params"] if p.grad is not None]

    def get_combined_params(self) -> list[Tensor]:
        """The values of all parameters with a gradient, flat, one tensor per device and dtype.

        The parameters become views of these tensors: writes to them change the parameters.
        """
        combined = []
        for params in self._alike(self._with_grad()):
            whole = _flat(params)
            for p, part in zip(params, whole.split([p.numel() for p in params]), strict=True):
                p.data = part.view(p.shape)
            combined.append(whole)
        return combined

    def get_combined_grads(self) -> list[Tensor]:
        """The gradients, as get_combined_params gives the parameters."""
        combined = []
        for params in self._alike(self._with_grad()):
            whole = _flat([p.grad for p in params])
            for p, part in zip(params, whole.split([p.numel() for p in params]), strict=True):
                p.grad = part.view(p.shape)
            combined.append(whole)
        return combined

    def clip_grad_norm_fused_(self, max_norm: float, norm_type: float = 2.0) -> Tensor:
        """Scales all gradients so that their common norm is at most `max_norm`; returns it."""
        return torch.nn.utils.clip_grad_norm_(self._with_grad(), max_norm, norm_type)
