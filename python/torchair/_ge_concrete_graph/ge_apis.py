# SPDX-License-Identifier: Apache-2.0
"""ge_apis.Name(...): an operator by its Ascend name, like ge.custom_op("Name", ...).

Ascend's operators are known here by the operator that PyTorch has under the same name, whose
parameters they take; the three that converters need most are torchair.ge's own.
"""

import functools
import re

from torchair.ge._custom_op import find
from torchair.ge._ge_graph import Cast, Clone, Const

__all__ = ["Cast", "Clone", "Const"]


def __getattr__(name: str):
    if not re.fullmatch(r"[A-Z]\w*", name):
        raise AttributeError(
            f"module 'torchair._ge_concrete_graph.ge_apis' has no attribute {name!r}"
        )
    return functools.partial(_call, name)


def _call(op_type: str, *args, node_name=None, dependencies=(), **kwargs):
    return find(op_type)(*args, **kwargs)
