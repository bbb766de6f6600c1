# SPDX-License-Identifier: Apache-2.0
"""Names that mean something to Ascend's engine only: one debug line for each that a program uses."""

import torch

from torchair._compiler import logger, named


@torch.compiler.assume_constant_result
def note(name: str) -> None:
    """Dynamo calls it while it traces, so that it leaves nothing in a graph."""
    if name not in named:
        named.add(name)
        logger.debug("%s is accepted and has no effect on this engine", name)
