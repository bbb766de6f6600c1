# SPDX-License-Identifier: Apache-2.0
"""The module newer tests import TestCase from."""

from .testcase import TestCase, run_tests

__all__ = ["TestCase", "run_tests"]
