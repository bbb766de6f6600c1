# SPDX-License-Identifier: Apache-2.0
"""Helpers for operator tests, under the names Ascend's test suites import.

Importing tells PyTorch's own device-type tests to run on the npu device; a
value the user has set stays.
"""

import os

os.environ.setdefault("PYTORCH_TESTING_DEVICE_FOR_CUSTOM", "privateuse1")
os.environ.setdefault("PYTORCH_TESTING_DEVICE_EXCEPT_FOR", "cuda,cpu")
