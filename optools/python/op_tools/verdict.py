# SPDX-License-Identifier: Apache-2.0
"""op_tools.verdict: the documented name of core/verdict.py."""

import sys

from op_tools.core import verdict as _module

sys.modules[__name__] = _module
