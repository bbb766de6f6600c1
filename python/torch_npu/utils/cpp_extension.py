# SPDX-License-Identifier: Apache-2.0
"""setuptools extensions that link the plugin."""

import os

import setuptools
from torch.utils import cpp_extension

import torch_npu

__all__ = ["NpuExtension"]

_ROOT = os.path.dirname(os.path.abspath(torch_npu.__file__))


def NpuExtension(name: str, sources, *args, **kwargs) -> setuptools.Extension:
    """A torch.utils.cpp_extension.CppExtension with torch_npu's headers and library.

    Build it with torch.utils.cpp_extension.BuildExtension.
    """
    for key, values in (
        ("include_dirs", [os.path.join(_ROOT, "include"), *cpp_extension.include_paths()]),
        ("library_dirs", [os.path.join(_ROOT, "lib"), *cpp_extension.library_paths()]),
        ("libraries", ["c10", "torch", "torch_cpu", "torch_python", "torch_npu"]),
        ("runtime_library_dirs", [os.path.join(_ROOT, "lib")]),
    ):
        kwargs[key] = [*kwargs.get(key, []), *values]
    kwargs["language"] = "c++"
    return setuptools.Extension(name, sources, *args, **kwargs)
