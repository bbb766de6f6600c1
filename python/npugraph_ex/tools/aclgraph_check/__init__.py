# SPDX-License-Identifier: Apache-2.0
"""Checks of the task streams of a captured graph."""
