# SPDX-License-Identifier: Apache-2.0
"""Module paths that converters written for TorchAir import from."""
