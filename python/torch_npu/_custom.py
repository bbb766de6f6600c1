# SPDX-License-Identifier: Apache-2.0
"""torch.ops.npu and torch.ops.atb: operators are defined when first asked for.

Reading their 400 schemas at import would cost more than the rest of it. Functions that implement
them are in torch_npu.ops, one module a family, imported with the first operator of the family.
"""

import importlib
import sys
import threading

import torch
from torch._ops import _OpNamespace

from torch_npu import _C

# An operator is found when its kernels are there: threads may ask for one at the same time.
_defining = threading.RLock()


class _Namespace(_OpNamespace):
    def __getattr__(self, name):
        if name.startswith("__"):
            return super().__getattr__(name)
        row = _C._find_custom(self.name, name)
        if row is None:
            return super().__getattr__(name)
        module = row[0]
        if module:
            importlib.import_module(f"torch_npu.ops.{module}")
        with _defining:
            return vars(self).get(name) or self._define(name, row)

    def _define(self, name, row):
        module = row[0]
        # A pack that defined the name first keeps it.
        if _C._define_custom(self.name, name) and module:
            sys.modules["torch_npu.ops"].register(self.name, name)
            if self.name == "npu":
                register_symbolic(name)
        packet = super().__getattr__(name)
        if "out" in packet.overloads():
            importlib.import_module("torch_npu._out_argument").add(packet)
        packet.__doc__ = describe(self.name, name, row)
        return packet

    def __dir__(self):
        return sorted({*super().__dir__(), *_C._custom_operators(self.name)})


def register_symbolic(name: str) -> None:
    """torch.onnx's TorchScript exporter asks for symbolics by name; the module is read at the first export."""

    def symbolic(g, *values):
        from torch_npu.onnx.torchscript import symbolic

        return symbolic(g, *values)

    torch.onnx.register_custom_op_symbolic(f"npu::{name}", symbolic, 9)


def describe(namespace: str, name: str, row: tuple[str, str, str, str]) -> str:
    module, doc, nearest, refused = row
    if module:
        state = f"Implemented in torch_npu.ops.{module}."
    else:
        state = f"Not implemented{': ' if refused else ''}{refused}. A call raises ERR01007." + (
            f" The nearest that is: {nearest}." if nearest else ""
        )
    return f"{namespace}::{name}: {doc}\n\n{state}"


def install() -> None:
    for name in ("npu", "atb"):
        setattr(torch.ops, name, _Namespace(name))
        # torch.export asks the namespaces listed here which composite operators it may keep.
        torch.ops._dir.append(name)
