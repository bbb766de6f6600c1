# SPDX-License-Identifier: Apache-2.0
"""op_tools.utils is a name of ditorch's for ditorch_compat/utils.py."""

import sys

from op_tools.ditorch_compat import utils as _module

sys.modules[__name__] = _module
