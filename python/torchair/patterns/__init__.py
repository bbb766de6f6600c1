# SPDX-License-Identifier: Apache-2.0
"""Replacements of parts of a graph."""
