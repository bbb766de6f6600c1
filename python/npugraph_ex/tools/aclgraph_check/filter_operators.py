# SPDX-License-Identifier: Apache-2.0
"""A trace without the tasks that deadlocks do not depend on."""

from torchair.tools._task_streams import filter_comm_ops, main_of_filter

__all__ = ["filter_comm_ops"]

if __name__ == "__main__":
    main_of_filter()
