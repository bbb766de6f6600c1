# SPDX-License-Identifier: Apache-2.0
"""Additions to torch_npu; `transfer_to_npu` runs CUDA programs on the npu."""
