# SPDX-License-Identifier: Apache-2.0
"""npugraph_ex's configuration."""
