# SPDX-License-Identifier: Apache-2.0
"""Loads the compiled part, after checking that it can be loaded."""

import importlib.machinery
import importlib.util
import os

import torch

_FOLDER = os.path.dirname(os.path.abspath(__file__))


def load() -> None:
    _check_installed()
    _check_torch_version()
    from torch_npu import _C, _custom, _exit, _packs, _private_names, _register

    _C._set_package_driver_dir(os.path.join(_FOLDER, "drivers"))
    _C._set_torch_platform("cuda" if torch.version.cuda else "")
    _C._install_ladder(os.path.join(_FOLDER, "data"))
    _register.register()
    _custom.install()
    _private_names.install(_C)
    _exit.install()
    _packs.load_all()


def _check_installed() -> None:
    suffixes = importlib.machinery.EXTENSION_SUFFIXES
    if any(os.path.exists(os.path.join(_FOLDER, "_C" + suffix)) for suffix in suffixes):
        return
    raise ImportError(
        f"torch_npu: imported from the source folder {_FOLDER}, which has no compiled part. "
        "Install it (pip install .) and start Python from another folder."
    )


def _check_torch_version() -> None:
    from torch_npu._build import torch_version as built

    found = torch.__version__
    if _series(found) != _series(built):
        raise ImportError(
            f"torch_npu: built for torch {built}, found torch {found}. "
            f"Install torch {_series(built)}, or rebuild torch_npu for the torch you have."
        )


def _series(version: str) -> str:
    return ".".join(version.split("+")[0].split(".")[:2])
