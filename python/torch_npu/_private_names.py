# SPDX-License-Identifier: Apache-2.0
"""Names of torch_npu._C that programs use and that Python answers here."""

import torch


def install(module) -> None:
    """`module` is torch_npu._C."""
    for function in (_empty_strided_npu, _npu_getOption, _npu_setOption, _is_gte_cann_version):
        setattr(module, function.__name__, function)
    module._get_cann_version = _get_cann_version
    module._npu_get_soc_version = _npu_get_soc_version


def _empty_strided_npu(size, stride, dtype: torch.dtype) -> torch.Tensor:
    """What code that Ascend's Inductor generates allocates with."""
    return torch.empty_strided(size, stride, dtype=dtype, device="npu")


def _npu_getOption(name: str) -> bytes | None:
    """The text of a switch that has one; None for the others, and for unknown names."""
    from torch_npu.npu import _options

    value = _options.get_option(name)
    return None if value is None else value.encode()


def _npu_setOption(option: dict) -> None:
    from torch_npu.npu import _options

    _options.set_option(option)


def _npu_get_soc_version() -> int:
    from torch_npu.npu import _device

    return _device.get_soc_version()


def _get_cann_version(module: str = "CANN") -> str:
    from torch_npu.utils import get_cann_version

    return get_cann_version(module)


def _is_gte_cann_version(version: str, module: str = "CANN") -> bool:
    """Whether the toolkit is new enough. A device that is no Ascend chip has none, and none is too
    old: what is missing raises when it is used."""
    from torch_npu.testing.common_utils import _version
    from torch_npu.utils._error_code import ErrCode, pta_error

    if module == "DRIVER":
        raise RuntimeError(
            "When the module is DRIVER, IsGteCANNVersion is not supported."
            + pta_error(ErrCode.VALUE)
        )
    if _version(version) < _version("8.1.RC1"):
        raise RuntimeError(
            f'When the version {version} is less than "8.1.RC1", GetCANNVersion is not supported.'
            + pta_error(ErrCode.VALUE)
        )
    found = _get_cann_version(module)
    return not found or _version(found) >= _version(version)
