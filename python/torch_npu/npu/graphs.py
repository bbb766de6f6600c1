# SPDX-License-Identifier: Apache-2.0
"""The module programs import device graphs from. Capturing comes with graph mode."""

from . import _later

__all__ = [name for name, part in _later.LATER.items() if part == _later.GRAPHS]
__all__ += ["is_current_stream_capturing"]  # noqa: F822

globals().update({name: getattr(_later, name) for name in __all__})
