# SPDX-License-Identifier: Apache-2.0
"""ditorch: runs CUDA scripts on whatever device is there.

This wheel reserves the package's name and place; the package arrives with the tools issue.
"""

__version__ = "0.1.0"
