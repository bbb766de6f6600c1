# SPDX-License-Identifier: Apache-2.0
"""Replacements of parts of a graph."""

from npugraph_ex.patterns.pattern_pass_manager import register_replacement

__all__ = ["register_replacement"]
