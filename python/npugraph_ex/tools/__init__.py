# SPDX-License-Identifier: Apache-2.0
"""Tools for files that Ascend's engine writes."""
