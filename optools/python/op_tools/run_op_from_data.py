# SPDX-License-Identifier: Apache-2.0
"""python -m op_tools.run_op_from_data, or this file by its path: cli/run_op_from_data.py."""

import os
import sys

if __package__ in (None, ""):  # python op_tools/run_op_from_data.py
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [path for path in sys.path if os.path.abspath(path or ".") != here]
    try:
        import op_tools._C  # noqa: F401
    except ImportError:
        # The sources do not hold the compiled part; an installed op_tools does.
        for name in [name for name in sys.modules if name.partition(".")[0] == "op_tools"]:
            del sys.modules[name]
        parent = os.path.dirname(here)
        sys.path[:] = [path for path in sys.path if os.path.abspath(path or ".") != parent]

from op_tools.cli import run_op_from_data as _module

if __name__ == "__main__":
    sys.exit(_module.main())
sys.modules[__name__] = _module
