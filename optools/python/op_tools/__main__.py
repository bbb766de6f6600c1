# SPDX-License-Identifier: Apache-2.0
"""python -m op_tools: the op-tools command."""

import sys

from op_tools.cli import main

sys.exit(main())
