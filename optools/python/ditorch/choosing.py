# SPDX-License-Identifier: Apache-2.0
"""Which device there is."""

from __future__ import annotations

import importlib.util
import os
import sys
from types import ModuleType

import torch


def number(name: str, default: int) -> int:
    value = os.environ.get(name, "").strip()
    try:
        return int(value) if value else default
    except ValueError:
        raise ValueError(f"{name}={value!r}: expected a whole number") from None


def plugin_name() -> str | None:
    """What a loaded plugin calls its device (`npu`). PyTorch loads plugins itself at import; where
    it does not (a CUDA build has one accelerator only), importing one is the script's decision."""
    name = torch._C._get_privateuse1_backend_name()
    module = getattr(torch, name, None)
    return name if name != "privateuseone" and isinstance(module, ModuleType) else None


def _is_there(device: str) -> bool:
    if device == "cpu":
        return True
    module = getattr(torch, device, None)
    return isinstance(module, ModuleType) and bool(getattr(module, "is_available", bool)())


def _load(device: str) -> None:
    """A device asked for by name may come from a package of that name."""
    if not hasattr(torch, device) and importlib.util.find_spec("torch_" + device):
        importlib.import_module("torch_" + device)


def there() -> list[str]:
    """The devices a script can have here, the one to take first."""
    return [d for d in (plugin_name(), "cuda", "xpu", "cpu") if d and _is_there(d)]


def choose() -> str:
    asked = os.environ.get("DITORCH_DEVICE", "").strip()
    if not asked:
        return there()[0]
    if not asked.isidentifier():
        raise ValueError(f"DITORCH_DEVICE={asked!r}: expected the name of a device, such as npu")
    _load(asked)
    if asked not in there():
        raise ValueError(
            f"DITORCH_DEVICE={asked!r}: no such device here; there are {', '.join(there())}"
        )
    return asked


def framework_of(device: str) -> ModuleType:
    """The package a device comes from."""
    return sys.modules.get("torch_" + device, torch)
