# SPDX-License-Identifier: Apache-2.0
"""What every folder of tests needs before PyTorch computes anything."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from amx import avoid_broken_amx

avoid_broken_amx()
