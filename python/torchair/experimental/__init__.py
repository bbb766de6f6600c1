# SPDX-License-Identifier: Apache-2.0
"""Parts of TorchAir that it calls experimental."""
