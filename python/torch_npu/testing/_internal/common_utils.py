# SPDX-License-Identifier: Apache-2.0
"""The module newer tests import tensor makers and gates from."""

from torch_npu.testing.common_utils import *  # noqa: F403
