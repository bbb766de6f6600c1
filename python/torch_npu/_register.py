# SPDX-License-Identifier: Apache-2.0
"""Makes PrivateUse1 the `npu` device of PyTorch's Python side."""

import torch
from torch.utils import backend_registration

# No quantised storage exists on an npu.
unsupported_dtype = [torch.quint8, torch.quint4x2, torch.quint2x4, torch.qint32, torch.qint8]


def register() -> None:
    backend_registration.rename_privateuse1_backend("npu")
    from torch_npu import _patches, npu

    torch._register_device_module("npu", npu)
    backend_registration.generate_methods_for_privateuse1_backend(
        for_tensor=True,
        for_module=True,
        for_packed_sequence=True,
        for_storage=True,
        unsupported_dtype=unsupported_dtype,
    )
    _patches.apply()
    if torch.distributed.is_available():
        from torch_npu import distributed

        distributed.register()
