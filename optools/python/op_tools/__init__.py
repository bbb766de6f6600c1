# SPDX-License-Identifier: Apache-2.0
"""op_tools: finds the operator that is wrong or slow, on any PyTorch device.

    with op_tools.OpOverflowCheck():
        train_step()

Each tool is a context manager with start(), stop() and end(). Importing this package changes
nothing: the dispatcher is touched while a tool runs, and is as it was afterwards.
"""

from op_tools.core import __version__ as __version__
from op_tools.ditorch_compat import api_hooks as _api_hooks  # noqa: F401  follows tools that speak
from op_tools.ditorch_compat.features import apply_feature
from op_tools.runs.self_checking import SelfCheckError, self_check
from op_tools.tools import registry as _registry
from op_tools.tools.grad_check import GradientError, OpGradCheck
from op_tools.tools.registry import *  # noqa: F403

__all__ = [
    *_registry.__all__,
    "GradientError",
    "OpGradCheck",
    "SelfCheckError",
    "apply_feature",
    "self_check",
]
