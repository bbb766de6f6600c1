# SPDX-License-Identifier: Apache-2.0
"""Random number state of the devices: 16 bytes, a seed and an offset."""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from torch_npu import _C

from ._device import _lazy_call, _lazy_init, device_count
from ._utils import Device, _checked_index

__all__ = [
    "get_rng_state", "get_rng_state_all", "initial_seed", "manual_seed", "manual_seed_all", "seed",
    "seed_all", "set_rng_state", "set_rng_state_all",
]  # fmt: skip


class _DefaultGenerators(Sequence):
    """The devices' own generators, as a tuple that is filled at first use."""

    def __len__(self) -> int:
        return device_count()

    def __getitem__(self, index):
        _lazy_init()
        if isinstance(index, slice):
            return tuple(self[i] for i in range(*index.indices(len(self))))
        if not -len(self) <= index < len(self):
            raise IndexError(f"torch.npu.default_generators: {index} of {len(self)} devices")
        return _C._default_generator(index % len(self))


default_generators = _DefaultGenerators()


def _generator(device: Device = None) -> torch.Generator:
    _lazy_init()
    return _C._default_generator(_checked_index(device))


def get_rng_state(device: Device = "npu") -> Tensor:
    return _generator(device).get_state()


def get_rng_state_all() -> list[Tensor]:
    return [get_rng_state(i) for i in range(device_count())]


def set_rng_state(new_state: Tensor, device: Device = "npu") -> None:
    state = new_state.detach().to("cpu", copy=True).contiguous()
    _generator(device).set_state(state)


def set_rng_state_all(new_states: Iterable[Tensor]) -> None:
    for i, state in enumerate(new_states):
        set_rng_state(state, i)


def manual_seed(seed: int) -> None:
    """Seeds the current device; kept for later when no device is in use yet."""
    number = int(seed)
    _lazy_call(lambda: _generator().manual_seed(number))


def manual_seed_all(seed: int) -> None:
    number = int(seed)

    def seed_every_device():
        for i in range(device_count()):
            _C._default_generator(i).manual_seed(number)

    _lazy_call(seed_every_device, seeds_all=True)


def seed() -> None:
    """Seeds the current device from the system's entropy."""
    _lazy_call(lambda: _generator().seed())


def seed_all() -> None:
    """The same entropy for every device."""

    def seed_every_device():
        number = _C._default_generator(0).seed()
        for i in range(1, device_count()):
            _C._default_generator(i).manual_seed(number)

    _lazy_call(seed_every_device, seeds_all=True)


def initial_seed() -> int:
    return _generator().initial_seed()
