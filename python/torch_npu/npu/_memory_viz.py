# SPDX-License-Identifier: Apache-2.0
"""Pictures of memory snapshots: PyTorch's own, whose snapshots have the same form."""

import sys

from torch.cuda import _memory_viz

# Tools import private ones by name too.
for _name, _value in vars(_memory_viz).items():
    if getattr(_value, "__module__", None) == _memory_viz.__name__:
        globals()[_name] = _value

__all__ = [_name for _name in globals() if not _name.startswith("_") and _name != "sys"]

if __name__ == "__main__":
    import runpy

    sys.exit(runpy.run_module("torch.cuda._memory_viz", run_name="__main__"))
