# SPDX-License-Identifier: Apache-2.0
"""The compiled core, loaded once; a wrong torch is a sentence and not an undefined symbol."""

from __future__ import annotations

import contextlib
import importlib.util
import os
from collections.abc import Iterator

import torch

try:
    from op_tools.core._build import torch_version as _built
except ImportError as error:
    raise ImportError(
        f"op_tools: imported from the source folder {os.path.dirname(os.path.dirname(__file__))}, which "
        "has no compiled part. Install it (pip install ./optools) and start Python from another folder."
    ) from error


def _series(version: str) -> str:
    return ".".join(version.split("+")[0].split(".")[:2])


if _series(torch.__version__) != _series(_built):
    raise ImportError(
        f"op_tools: built for torch {_built}, found torch {torch.__version__}. Install torch "
        f"{_series(_built)}, or opennpu-tools built for the torch you have."
    )

from op_tools import _C  # noqa: E402

__version__ = "0.1.0"

_C.set_library_paths(
    [
        os.path.dirname(torch.__file__) + os.sep,
        os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep,
        os.path.dirname(os.path.dirname(torch.__file__)) + os.sep + "torch_",
    ]
)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """What runs inside is ours: no tool sees it."""
    before = _C.quiet()
    try:
        yield
    finally:
        _C.end_quiet(before)


def first_line(error: BaseException) -> str:
    """What an error says, in short; some of PyTorch's say nothing."""
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def kind_and_line(error: BaseException) -> str:
    """The same after the error's class, for rows where several errors stand together."""
    return f"{type(error).__name__}: {''.join(str(error).splitlines()[:1])}"


def usable(device: str) -> None:
    """Raises RuntimeError where there is no such device. Its plugin may not be loaded yet: PyTorch
    loads plugins by their entry points, which an installation by CMake does not have."""
    kind = device.partition(":")[0]
    if (
        not hasattr(torch, kind)
        and kind.isidentifier()
        and importlib.util.find_spec("torch_" + kind)
    ):
        importlib.import_module("torch_" + kind)
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise RuntimeError(first_line(error)) from error


def location(site: int) -> str:
    """`file:line function` of a site number, or `-`."""
    found = _C.site(site)
    return f"{found[0]}:{found[1]} {found[2]}" if found else "-"
