# SPDX-License-Identifier: Apache-2.0
"""Where TorchAir keeps its logger."""
