# SPDX-License-Identifier: Apache-2.0
"""Paths of newer tests."""
