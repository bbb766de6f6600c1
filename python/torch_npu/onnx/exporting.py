# SPDX-License-Identifier: Apache-2.0
"""export, and _export of PyTorch 1.8."""

from __future__ import annotations

import importlib.util

import torch

from torch_npu._packs import onnx_translations
from torch_npu.onnx.dynamo import attach_functions, translation_table


def _need(*modules: str) -> None:
    missing = [m for m in modules if importlib.util.find_spec(m) is None]
    if missing:
        raise ModuleNotFoundError(
            f"ONNX export needs {' and '.join(missing)}: pip install 'opennpu[onnx]'.",
            name=missing[0],
        )


def export(
    model, args=(), f=None, *, dynamo: bool = True, custom_translation_table=None, **options
):
    """torch.onnx.export with npu operators as nodes of domain npu, each with its body.

    Entries of `custom_translation_table` come before those of operator packs (TRANSLATIONS in a pack's
    onnx.py), and these before ours. The answer and all other arguments are
    those of torch.onnx.export.
    """
    _need("onnx", "onnxscript") if dynamo else _need("onnx")
    if not dynamo:
        return torch.onnx.export(model, args, f, dynamo=False, **options)
    table = {**translation_table(), **onnx_translations(), **(custom_translation_table or {})}
    saving = {
        name: options.pop(name)
        for name in ("external_data", "keep_initializers_as_inputs")
        if name in options
    }
    program = torch.onnx.export(
        model, args, None, dynamo=True, custom_translation_table=table, **options
    )
    attach_functions(program)
    if f is not None:
        program.save(f, **saving)
        return None
    return program


def _export(model, inputs, f, *args, **options):
    """torch.onnx._export of PyTorch 1.8, the TorchScript exporter's entry."""
    _need("onnx")
    return torch.onnx.utils._export(model, inputs, f, *args, **options)
