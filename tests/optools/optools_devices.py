# SPDX-License-Identifier: Apache-2.0
"""Which devices the tools' tests use.

OP_TOOLS_DEVICE (comma-separated) where it is set, else cpu and cuda where there is a GPU, else cpu
and npu. Not cuda and npu in one process: PyTorch has one accelerator.
"""

import importlib.util
import os
import sys

import torch


def _devices():
    asked = os.environ.get("OP_TOOLS_DEVICE", "")
    if asked:
        return [name.strip() for name in asked.split(",")]
    if torch.cuda.is_available() and "torch_npu" not in sys.modules:
        return ["cpu", "cuda"]
    return ["cpu"] + ["npu"] * (importlib.util.find_spec("torch_npu") is not None)


DEVICES = _devices()
ACCELERATORS = [name for name in DEVICES if name != "cpu"]
KEYS = {"cpu": "CPU", "cuda": "CUDA", "npu": "PrivateUse1"}
