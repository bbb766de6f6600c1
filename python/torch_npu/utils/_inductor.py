# SPDX-License-Identifier: Apache-2.0
"""The lines of Python that a generated program needs to talk to the device."""

__all__ = ["NPUDeviceOpOverrides"]


class NPUDeviceOpOverrides:
    """Source text, under the names torch._inductor asks its device modules for."""

    def import_get_raw_stream_as(self, name: str) -> str:
        return f"from torch_npu._C import _npu_getCurrentRawStream as {name}"

    def set_device(self, device_idx: int) -> str:
        return f"torch_npu.npu.set_device({device_idx})"

    def synchronize(self) -> str:
        return "torch_npu.npu.synchronize()"

    def device_guard(self, device_idx: int) -> str:
        return f"torch_npu.npu.device({device_idx})"
