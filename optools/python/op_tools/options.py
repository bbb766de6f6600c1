# SPDX-License-Identifier: Apache-2.0
"""Environment variables: read when asked, never written, and named when they are wrong."""

from __future__ import annotations

import os

import torch

VERBOSE_FORMS = ("", "ditorch")


def text(name: str, default: str = "") -> str:
    return os.environ.get(name, default)


def number(name: str, default: int) -> int:
    value = os.environ.get(name, "").strip()
    if not value:
        return default
    try:
        return int(value)
    except ValueError:
        raise ValueError(f"{name}={value!r}: expected a whole number") from None


def verbose() -> str:
    value = text("OP_TOOLS_VERBOSE").strip()
    if value not in VERBOSE_FORMS:
        raise ValueError(
            f"OP_TOOLS_VERBOSE={value!r}: expected nothing or one of {VERBOSE_FORMS[1:]}"
        )
    return value


def devices() -> list[str]:
    """Device types the tools look at: OP_TOOLS_DEVICE, else the accelerator, else the cpu."""
    value = text("OP_TOOLS_DEVICE").strip()
    accelerator = torch.accelerator.current_accelerator()
    if value == "all":
        return ["cpu"] + ([accelerator.type] if accelerator else [])
    if not value:
        return [accelerator.type if accelerator else "cpu"]
    names = [piece.strip() for piece in value.split(",") if piece.strip()]
    for name in names:
        try:
            torch.device(name)
        except RuntimeError:
            raise ValueError(
                f"OP_TOOLS_DEVICE={value!r}: {name!r} is no device; expected 'all' or names like cpu, cuda, npu"
            ) from None
    return [torch.device(name).type for name in names]
