# SPDX-License-Identifier: Apache-2.0
"""What torch.compile asks about the device: its streams and events can then be part of a graph."""

import torch


def register(module) -> None:
    """`module` is torch._dynamo.device_interface."""

    class NpuInterface(module.DeviceInterface):
        Event = torch.npu.Event
        Stream = torch.npu.Stream
        device = torch.npu.device

        class Worker:
            @staticmethod
            def set_device(device: int):
                torch.npu.set_device(device)

            @staticmethod
            def current_device() -> int:
                return torch.npu.current_device()

            @staticmethod
            def get_device_properties(device=None):
                return torch.npu.get_device_properties(device)

        current_device = staticmethod(torch.npu.current_device)
        set_device = staticmethod(torch.npu.set_device)
        device_count = staticmethod(torch.npu.device_count)
        stream = staticmethod(torch.npu.stream)
        current_stream = staticmethod(torch.npu.current_stream)
        set_stream = staticmethod(torch.npu.set_stream)
        is_available = staticmethod(torch.npu.is_available)
        synchronize = staticmethod(torch.npu.synchronize)
        get_device_properties = staticmethod(torch.npu.get_device_properties)
        memory_allocated = staticmethod(torch.npu.memory_allocated)

        @staticmethod
        def exchange_device(device: int) -> int:
            return torch._C._accelerator_exchangeDevice(device)

        @staticmethod
        def maybe_exchange_device(device: int) -> int:
            return torch._C._accelerator_maybeExchangeDevice(device)

        @staticmethod
        def _set_stream_by_id(stream_id: int, device_index: int, device_type: int):
            torch.npu.set_stream(
                torch.npu.Stream(
                    stream_id=stream_id, device_index=device_index, device_type=device_type
                )
            )

        @staticmethod
        def get_raw_stream(device_idx: int) -> int:
            return torch.npu.current_stream(device_idx).npu_stream

        @staticmethod
        def get_compute_capability(device=None):
            return 0

        @staticmethod
        def is_bf16_supported(including_emulation: bool = False) -> bool:
            return True

        @staticmethod
        def raise_if_triton_unavailable(device=None) -> None:
            raise RuntimeError("Triton generates no code for npu devices.")

        @staticmethod
        def is_triton_capable(device=None) -> bool:
            return False

    module.register_interface_for_device("npu", NpuInterface)
    for index in range(torch.npu.device_count()):
        module.register_interface_for_device(f"npu:{index}", NpuInterface)
