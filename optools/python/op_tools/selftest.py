# SPDX-License-Identifier: Apache-2.0
"""python -m op_tools.selftest: cli/selftest.py."""

import sys

from op_tools.cli import selftest as _module

if __name__ == "__main__":
    sys.exit(_module.main(sys.argv[1:]))
sys.modules[__name__] = _module
