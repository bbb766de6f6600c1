# SPDX-License-Identifier: Apache-2.0
"""op_tools.base_hook is a name of ditorch's for ditorch_compat/base_hook.py."""

import sys

from op_tools.ditorch_compat import base_hook as _module

sys.modules[__name__] = _module
