# SPDX-License-Identifier: Apache-2.0
"""Exit status 0 where an apex is installed that is not ours: then ours stays out of its way."""

import importlib.util
import sys
from importlib import metadata

if importlib.util.find_spec("apex") is None:
    sys.exit(1)
try:
    ours = metadata.version("apex").endswith("+opennpu")
except metadata.PackageNotFoundError:
    ours = False
if ours:
    sys.exit(1)
print("apex: another one is installed and stays; compat/apex is left out")
