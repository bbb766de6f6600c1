# SPDX-License-Identifier: Apache-2.0
"""op_tools.op_runner is a name of ditorch's for ditorch_compat/op_runner.py."""

import sys

from op_tools.ditorch_compat import op_runner as _module

sys.modules[__name__] = _module
