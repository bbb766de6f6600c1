# SPDX-License-Identifier: Apache-2.0
"""A trace whose time axis shows the order of tasks instead of their times."""

from torchair.tools._task_streams import align_trace_json, main_of_align

__all__ = ["align_trace_json"]

if __name__ == "__main__":
    main_of_align()
