# SPDX-License-Identifier: Apache-2.0
"""Names of torch_npu that are found when first asked for, so that import stays quick."""

import importlib

_SUBMODULES = {
    "contrib",
    "distributed",
    "dynamo",
    "onnx",
    "ops",
    "optim",
    "profiler",
    "testing",
    "utils",
}

# Known names of torch_npu that come with later parts of the product.
_LATER = {
    "jit": "jit optimisation",
    "op_plugin": "npu operators",
    "HiFloat8Tensor": "npu operators",
    "matmul_checksum": "npu operators",
}

# Functions of torch_npu that are Python here.
_FUNCTIONS = {
    "erase_stream": "torch_npu.npu.streams",
    "npu_change_data_ptr": "torch_npu.utils.combine_tensors",
}


def lazy_attribute(name: str):
    import torch

    if name in _FUNCTIONS:
        return getattr(importlib.import_module(_FUNCTIONS[name]), name)

    if name in _SUBMODULES:
        return importlib.import_module(f"torch_npu.{name}")
    if name == "atb":
        return torch.ops.atb
    for namespace in (torch.ops.npu, torch.ops.atb):
        if not name.startswith("__") and hasattr(namespace, name):
            return getattr(namespace, name)
    if name in _LATER:
        raise AttributeError(
            f"torch_npu.{name} is not in this version: it comes with {_LATER[name]}."
        )
    raise AttributeError(f"module 'torch_npu' has no attribute '{name}'")
