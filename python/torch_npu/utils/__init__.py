# SPDX-License-Identifier: Apache-2.0
"""Helpers under torch_npu.utils."""

import importlib
import warnings

from ._error_code import ErrCode, dist_error, graph_error, ops_error, prof_error, pta_error

# Found when first asked for: torch_npu itself is imported with this package.
_LAZY = {
    "FlopsCounter": "flops_count",
    "define_operators": "_define",
    "get_part_combined_tensor": "combine_tensors",
    "is_combined_tensor_valid": "combine_tensors",
    "npu_combine_tensors": "combine_tensors",
    "print_error_log": "utils",
    "print_info_log": "utils",
    "print_warn_log": "utils",
    "reset_thread_affinity": "affinity",
    "save_async": "serialization",
    "set_thread_affinity": "affinity",
}

__all__ = [
    "ErrCode", "dist_error", "get_cann_version", "graph_error", "ops_error", "prof_error",
    "pta_error", *_LAZY,
]  # fmt: skip


# The toolkit of the torch_npu release that this package answers for: TorchNPU 26.1.0 of Ascend's
# table of releases, for PyTorch 2.7 to 2.12.
_CANN = "9.1.0"
_COMPONENTS = frozenset(
    "CANN RUNTIME COMPILER HCCL TOOLKIT OPP OPP_KERNEL "
    "acl_extend aoe asc-devkit ascendnpu-ir asc-tools bisheng-compiler dflow-executor dvpp "
    "ge-compiler ge-executor graph_autofusion hccl hcomm hixl metadef ncs oam_tools opbase ops_cv "
    "ops_legacy ops_math ops_nn ops_transformer pto_isa pyACL runtime tbe-tik test-ops".split()
)


def get_cann_version(module: str = "CANN") -> str:
    """The version of Ascend's toolkit, or of a component, that programs find on this chip: as
    torch_npu answers on it. Empty for a device that is no Ascend chip, for an unknown component, and
    for the kernel's driver, which is not imitated. Opens nothing."""
    from torch_npu.npu import _device

    if module not in _COMPONENTS:
        if module != "DRIVER":
            warnings.warn(f"module {module} is invalid.", stacklevel=2)
        return ""
    is_ascend = _device.device_count() > 0 and _device.get_soc_version() >= 0
    return _CANN if is_ascend else ""


def __getattr__(name: str):
    if name in _LAZY:
        return getattr(importlib.import_module(f"torch_npu.utils.{_LAZY[name]}"), name)
    raise AttributeError(f"module 'torch_npu.utils' has no attribute '{name}'")
