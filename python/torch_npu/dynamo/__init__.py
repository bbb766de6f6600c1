# SPDX-License-Identifier: Apache-2.0
"""Where torch_npu keeps TorchAir: `from torch_npu.dynamo import torchair`."""

import sys

import torchair

sys.modules[f"{__name__}.torchair"] = torchair
