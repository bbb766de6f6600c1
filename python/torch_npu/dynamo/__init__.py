# SPDX-License-Identifier: Apache-2.0
"""Where torch_npu keeps its graph packages: `from torch_npu.dynamo import torchair, npugraph_ex`."""

import sys

import npugraph_ex
import torchair

for _package in (torchair, npugraph_ex):
    sys.modules[f"{__name__}.{_package.__name__}"] = _package
