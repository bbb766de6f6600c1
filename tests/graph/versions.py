# SPDX-License-Identifier: Apache-2.0
"""What differs between versions of torch in compiled graphs."""

import torch


def dynamo_traces_adamw_as_eager() -> bool:
    """With capturable=True. Before 2.13 Dynamo traces another formula, of fewer operators."""
    return tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 13)
