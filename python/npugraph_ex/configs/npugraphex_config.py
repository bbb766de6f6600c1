# SPDX-License-Identifier: Apache-2.0
"""Where older releases of npugraph_ex keep what reads options."""

from npugraph_ex.configs.compiler_config import _process_kwargs_options

__all__ = ["_process_kwargs_options"]
