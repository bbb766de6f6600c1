# SPDX-License-Identifier: Apache-2.0
"""debug.data_dump: every node's operands and results as .npy files, while the graph runs eagerly."""

import itertools
import os
import time

import torch
from torch.fx import Interpreter

from torchair._compiler import boxed


def dumping(module: torch.fx.GraphModule, config, number: int):
    options = config.debug.data_dump
    steps = itertools.count()
    root = os.path.join(options.path.value or os.getcwd(), _process(), f"graph_{number}")

    def run(*args):
        folder = os.path.join(root, str(next(steps)))
        os.makedirs(folder, mode=0o750, exist_ok=True)
        return _Dumper(module, folder, options.filter.raw).run(*args)

    return boxed(run)


def _process() -> str:
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        return f"worldsize{distributed.get_world_size()}_global_rank{distributed.get_rank()}"
    return "worldsize1_global_rank0"


class _Dumper(Interpreter):
    def __init__(self, module, folder: str, wanted):
        super().__init__(module)
        self._folder = folder
        self._wanted = wanted

    def run_node(self, node):
        takes = node.op == "call_function" and (self._wanted is None or self._wanted(node))
        if takes:
            args, _ = self.fetch_args_kwargs_from_env(node)
            self._save(node, "INPUT", args)
        result = super().run_node(node)
        if takes:
            self._save(node, "OUTPUT", result if isinstance(result, (list, tuple)) else (result,))
        return result

    def _save(self, node, role: str, values) -> None:
        import numpy

        for i, value in enumerate(values):
            parts = value if isinstance(value, (list, tuple)) else (value,)
            for j, part in enumerate(parts):
                if isinstance(part, torch.Tensor):
                    place = f"{i}.{j}" if isinstance(value, (list, tuple)) else str(i)
                    stamp = time.time_ns() // 1000
                    name = f"{node.name}-{node.target}.{role}.{place}.{stamp}.npy"
                    data = part.detach().cpu()
                    data = data.float() if data.dtype == torch.bfloat16 else data
                    numpy.save(os.path.join(self._folder, name), data.numpy())
