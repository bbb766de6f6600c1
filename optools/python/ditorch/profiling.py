# SPDX-License-Identifier: Apache-2.0
"""ProfilerActivity.CUDA: the device's own activity where PyTorch has one, else the host's alone.

PyTorch would ask CUDA for an event per operator, since torch.cuda says that it is there.
"""

from __future__ import annotations

from collections.abc import Callable

from torch.autograd import profiler as autograd_profiler
from torch.profiler import ProfilerActivity
from torch.profiler import profiler as kineto

from ditorch import devices
from ditorch.patching import Patches


def _activities(asked: object) -> object:
    if asked is None:
        return None
    own = getattr(ProfilerActivity, devices.target.upper(), ProfilerActivity.CPU)
    return list(dict.fromkeys(own if each == ProfilerActivity.CUDA else each for each in asked))


def patch(patches: Patches) -> None:
    target = devices.target if devices.target in ("xpu", "hpu", "mtia") else None

    def by_activities(original: Callable) -> Callable:
        def call(self, *, activities=None, **kwargs):
            original(self, activities=_activities(activities), **kwargs)

        return call

    def by_device(original: Callable) -> Callable:
        def call(self, enabled=True, *, use_cuda=False, use_device=None, **kwargs):
            if use_cuda or use_device == "cuda":
                use_device = target
            original(self, enabled, use_device=use_device, **kwargs)

        return call

    patches.wrap(kineto._KinetoProfile, "__init__", by_activities)
    patches.wrap(kineto.profile, "__init__", by_activities)
    patches.wrap(autograd_profiler.profile, "__init__", by_device)
