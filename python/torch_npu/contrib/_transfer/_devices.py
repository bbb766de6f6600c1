# SPDX-License-Identifier: Apache-2.0
"""Device arguments that say cuda, read as npu."""

import torch

real_device = torch.device


def to_npu(device):
    """`device` with cuda read as npu; anything else comes back as it is."""
    if isinstance(device, str):
        return "npu" + device[4:] if device == "cuda" or device.startswith("cuda:") else device
    if isinstance(device, real_device) and device.type == "cuda":
        return real_device("npu", device.index) if device.index is not None else real_device("npu")
    return device


def type_to_npu(name):
    """The same for the legacy names of tensor types: torch.cuda.FloatTensor."""
    if isinstance(name, str) and name.startswith("torch.cuda."):
        return "torch.npu." + name[len("torch.cuda.") :]
    return to_npu(name)


class _DeviceMeta(type):
    def __call__(cls, *args, **kwargs):
        args = tuple(to_npu(a) for a in args)
        kwargs = {k: to_npu(v) for k, v in kwargs.items()}
        return real_device(*args, **kwargs)

    def __instancecheck__(cls, instance) -> bool:
        return isinstance(instance, real_device)

    def __subclasscheck__(cls, other) -> bool:
        return other is cls or issubclass(other, real_device)


# torch.device is a C type that can be neither patched nor derived from; this
# stands in its place. Devices themselves stay the real ones.
device = _DeviceMeta("device", (), {"__module__": "torch", "__doc__": real_device.__doc__})
