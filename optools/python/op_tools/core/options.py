# SPDX-License-Identifier: Apache-2.0
"""Environment variables: read when asked, never written, and named when they are wrong."""

from __future__ import annotations

import os

import torch

# What OP_TOOLS_VERBOSE may ask for: ditorch's newest lines, or those of August 2024.
VERBOSE_FORMS = ("", "ditorch", "ditorch-2024-08")
CAPTURE_FORMATS = ("native", "ditorch", "ditorch-2024-08")
_shown: dict[str, str] = {}


def _show(name: str, value: str) -> None:
    """ditorch's `option:` line, when a value is met first or has changed."""
    if os.environ.get("OP_TOOLS_VERBOSE") and _shown.get(name) != value:
        _shown[name] = value
        print(f"option: {name}={value}")


def text(name: str, default: str = "") -> str:
    value = os.environ.get(name, default)
    if value:
        _show(name, value)
    return value


def number(name: str, default: int) -> int:
    value = text(name).strip()
    if not value:
        return default
    try:
        return int(value)
    except ValueError:
        raise ValueError(f"{name}={value!r}: expected a whole number") from None


def percent(name: str) -> float | None:
    """From 0 to 100, or None where the variable is not set."""
    value = text(name).strip().removesuffix("%")
    if not value:
        return None
    try:
        found = float(value)
    except ValueError:
        found = -1.0
    if not 0 <= found <= 100:
        raise ValueError(f"{name}={value!r}: expected a percentage from 0 to 100")
    return found


def choice(name: str, allowed: tuple[str, ...]) -> str:
    """One of `allowed`, the first by default."""
    value = os.environ.get(name, "").strip() or allowed[0]
    if value not in allowed:
        names = [each for each in allowed if each]
        raise ValueError(f"{name}={value!r}: expected nothing or one of {', '.join(names)}")
    return value


def steps(name: str) -> tuple[int, int] | None:
    """`3` or `3-7`: first and last step."""
    value = text(name).strip()
    if not value:
        return None
    first, _, last = value.partition("-")
    if not first.isdigit() or (last and not last.isdigit()) or int(last or first) < int(first):
        raise ValueError(f"{name}={value!r}: expected a step like 3 or a range like 3-7")
    return int(first), int(last or first)


def verbose() -> str:
    return choice("OP_TOOLS_VERBOSE", VERBOSE_FORMS)


def capture_format() -> str:
    return choice("OP_CAPTURE_FORMAT", CAPTURE_FORMATS)


def accelerator() -> str | None:
    """The type of the device this process computes on, where that is not the cpu."""
    found = torch.accelerator.current_accelerator()
    return None if found is None else found.type


def rank() -> str | None:
    """This process's rank, where there is more than one."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return str(torch.distributed.get_rank())
    return os.environ.get("RANK", "").strip() or None


def devices() -> list[str]:
    """Device types the tools look at: OP_TOOLS_DEVICE, else the accelerator, else the cpu."""
    value = text("OP_TOOLS_DEVICE").strip()
    found = accelerator()
    if value == "all":
        return ["cpu"] + ([found] if found else [])
    if not value:
        return [found or "cpu"]
    names = [piece.strip() for piece in value.split(",") if piece.strip()]
    for name in names:
        try:
            torch.device(name)
        except RuntimeError:
            raise ValueError(
                f"OP_TOOLS_DEVICE={value!r}: {name!r} is no device; expected 'all' or names like cpu, cuda, npu"
            ) from None
    return [torch.device(name).type for name in names]


def tolerance(name: str) -> tuple[float, float] | None:
    """`atol,rtol`, or None where the variable is not set."""
    value = text(name).strip()
    if not value:
        return None
    try:
        atol, rtol = (float(piece) for piece in value.split(","))
    except ValueError:
        raise ValueError(
            f"{name}={value!r}: expected two numbers, atol,rtol, such as 1e-3,1e-3"
        ) from None
    return atol, rtol
