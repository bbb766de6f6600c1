# SPDX-License-Identifier: Apache-2.0
"""op_tools: finds the operator that is wrong or slow, on any PyTorch device.

This wheel reserves the package's name and place; its tools arrive with the tools issue.
"""

__version__ = "0.1.0"
