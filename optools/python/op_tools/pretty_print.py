# SPDX-License-Identifier: Apache-2.0
"""op_tools.pretty_print is a name of ditorch's for core/tables.py."""

import sys

from op_tools.core import tables as _module

sys.modules[__name__] = _module
