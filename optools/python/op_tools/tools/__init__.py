# SPDX-License-Identifier: Apache-2.0
"""The tools, one file each."""
