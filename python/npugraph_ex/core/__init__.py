# SPDX-License-Identifier: Apache-2.0
"""Where npugraph_ex keeps its logger."""
