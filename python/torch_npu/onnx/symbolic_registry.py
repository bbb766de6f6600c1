# SPDX-License-Identifier: Apache-2.0
"""torch.onnx.symbolic_registry as PyTorch 1.8 had it: `register_op`, `is_registered_op`, `get_registered_op`.

Operators of the default domain, "", are those of namespace npu when there is one of that name, else ATen's.
"""

from __future__ import annotations

import torch
from torch.onnx._internal.torchscript_exporter import registration


def _name(opname: str, domain: str) -> str:
    if domain:
        return f"{domain}::{opname}"
    from torch_npu import _C

    return f"npu::{opname}" if _C._find_custom("npu", opname) else f"aten::{opname}"


def register_op(opname: str, op, domain: str, version: int) -> None:
    torch.onnx.register_custom_op_symbolic(_name(opname, domain), op, version)


def is_registered_op(opname: str, domain: str, version: int) -> bool:
    return registration.registry.is_registered_op(_name(opname, domain), version)


def get_registered_op(opname: str, domain: str, version: int):
    group = registration.registry.get_function_group(_name(opname, domain))
    found = group.get(version) if group is not None else None
    if found is None:
        raise RuntimeError(
            f"no symbolic of {_name(opname, domain)} for opset {version} is registered."
        )
    return found


def unregister_op(opname: str, domain: str, version: int) -> None:
    torch.onnx.unregister_custom_op_symbolic(_name(opname, domain), version)
