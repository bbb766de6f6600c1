# SPDX-License-Identifier: Apache-2.0
"""Lightning's accelerator `npu`, made for each of the packages Lightning comes as."""

from __future__ import annotations

import torch


def make(base: type, misconfigured: type[Exception]) -> type:
    """A class under Lightning's Accelerator `base`; bad devices raise its own exception."""

    class NPUAccelerator(base):
        """The npu devices of this process."""

        def setup_device(self, device: torch.device) -> None:
            if device.type != "npu":
                raise misconfigured(f"accelerator 'npu' got the device {device}.")
            torch.npu.set_device(device)

        def teardown(self) -> None:
            torch.npu.empty_cache()

        def get_device_stats(self, device) -> dict:
            return dict(torch.npu.memory_stats(device))

        @staticmethod
        def parse_devices(devices) -> list[int]:
            return _chosen(devices, misconfigured)

        @staticmethod
        def get_parallel_devices(devices: list[int]) -> list[torch.device]:
            return [torch.device("npu", i) for i in devices]

        @staticmethod
        def auto_device_count() -> int:
            return torch.npu.device_count()

        @staticmethod
        def is_available() -> bool:
            return torch.npu.is_available()

        @staticmethod
        def name() -> str:
            return "npu"

        @classmethod
        def register_accelerators(cls, registry) -> None:
            registry.register(cls.name(), cls, description="npu devices of torch_npu")

    return NPUAccelerator


def _chosen(devices: int | str | list[int], misconfigured: type[Exception]) -> list[int]:
    """Numbers of devices, as Lightning writes them: 2, "2", -1 for all, [0, 2], "0,2", "1,"."""
    wrong = misconfigured(
        f"devices={devices!r}: a number of devices, a list of their numbers, '0,1' or -1 (all) is expected."
    )
    asked = devices
    if isinstance(asked, str):
        try:
            parts = [int(part) for part in asked.split(",") if part.strip()]
        except ValueError:
            raise wrong from None
        asked = parts if "," in asked or len(parts) != 1 else parts[0]
    count = torch.npu.device_count()
    if isinstance(asked, int) and not isinstance(asked, bool):
        asked = list(range(count if asked == -1 else asked))
    if not isinstance(asked, list | tuple) or any(type(i) is not int for i in asked) or not asked:
        raise wrong
    if len(set(asked)) != len(asked):
        raise misconfigured(f"devices={devices!r} names a device twice.")
    # torchrun may show each process its own device only.
    alone = torch.distributed.is_torchelastic_launched() and count == 1
    missing = [i for i in asked if not 0 <= i < count]
    if missing and not alone:
        raise misconfigured(
            f"devices={devices!r}: there is no npu:{missing[0]}, only {count} of them. "
            "NPU_HOST_DEVICES says how many the host driver has."
        )
    return list(asked)
