# SPDX-License-Identifier: Apache-2.0
"""A capture as one HTML file that needs nothing else: `op-tools report`."""

from op_tools.report.gathering import Options, gather
from op_tools.report.page import render

__all__ = ["Options", "gather", "render"]
