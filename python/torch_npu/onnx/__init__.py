# SPDX-License-Identifier: Apache-2.0
"""ONNX export of Ascend's own operators: nodes of domain `npu` whose bodies are functions of the model.

A file with bodies runs in a stock onnxruntime. `torch.onnx.export(..., dynamo=False)` makes them by
itself; the Dynamo exporter takes a table and inlines functions, so there `torch_npu.onnx.export`
gives it ours and attaches the bodies afterwards. Nothing of torch is patched. docs/onnx.md.
"""

from torch_npu.onnx import symbolic_registry
from torch_npu.onnx.dynamo import attach_functions, translation_table
from torch_npu.onnx.exporting import _export, export

__all__ = ["_export", "attach_functions", "export", "symbolic_registry", "translation_table"]
