# SPDX-License-Identifier: Apache-2.0
"""Some virtual machines say they have AMX and die on its first instruction.

PyTorch's own bfloat16 matrix product then kills the process, with or without us. Where that is
so, oneDNN is told to do without.
"""

import os
import subprocess
import sys
from pathlib import Path

PROBE = "import torch; a = torch.ones(64, 64, dtype=torch.bfloat16); a @ a"


def avoid_broken_amx():
    """Call before anything multiplies matrices; children inherit it."""
    cpu = Path("/proc/cpuinfo")
    if "ONEDNN_MAX_CPU_ISA" in os.environ or not cpu.exists() or "amx_bf16" not in cpu.read_text():
        return
    env = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    probe = subprocess.run([sys.executable, "-c", PROBE], env=env, capture_output=True)
    if probe.returncode != 0:
        os.environ["ONEDNN_MAX_CPU_ISA"] = "AVX512_CORE_FP16"
