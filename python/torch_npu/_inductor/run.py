# SPDX-License-Identifier: Apache-2.0
"""Generated host code, called with npu tensors: it gets CPU tensors over the same bytes."""

import torch

from torch_npu import _C


class HostGraph:
    """One compiled graph. Called as AOTAutograd calls: with a list, which is emptied."""

    def __init__(self, compiled, twin, falling: list[str], dtype_gaps: list[tuple]):
        self._boxed_call = True  # on the object: Dynamo's wrappers copy what an object has
        self._compiled = compiled
        self._places = twin.places
        self._wants_npu = twin.wants_npu
        self._npu_alone = twin.npu_alone
        self._device = twin.device
        self._falling = falling
        self._dtype_gaps = dtype_gaps

    def __call__(self, args: list):
        if self._falling:
            _C._count_compiled(self._falling)
        if self._dtype_gaps:
            _C._judge_compiled(self._dtype_gaps)
        given = list(args)
        args.clear()
        if self._npu_alone:  # nothing to sort
            return _C._run_host_function(self._compiled, given, self._device)
        rest: dict[int, object] = {}  # results that are not npu tensors

        def call(cpu: list):
            values = list(given)
            for place, tensor in zip(self._places, cpu):
                values[place] = tensor
            cpu.clear()
            results = self._compiled(values)
            made = []
            for i, (result, wants) in enumerate(zip(results, self._wants_npu)):
                if wants and result is not None:
                    made.append(result)
                else:
                    rest[i] = result
            return made

        made = iter(_C._run_host_function(call, [given[i] for i in self._places], self._device))
        return [
            self._settled(rest[i], given) if i in rest else next(made)
            for i in range(len(self._wants_npu))
        ]

    @staticmethod
    def _settled(value, given):
        """Host tensors of the call lie in the device's memory: they move to the host's."""
        if not isinstance(value, torch.Tensor) or any(value is g for g in given):
            return value
        return value.clone()
