# SPDX-License-Identifier: Apache-2.0
"""op_tools.save_op_args is a name of ditorch's for ditorch_compat/save_op_args.py."""

import sys

from op_tools.ditorch_compat import save_op_args as _module

sys.modules[__name__] = _module
