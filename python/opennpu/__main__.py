# SPDX-License-Identifier: Apache-2.0
"""`python -m opennpu` is the `opennpu` command."""

import sys

from opennpu.cli import main

sys.exit(main())
