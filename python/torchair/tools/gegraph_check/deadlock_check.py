# SPDX-License-Identifier: Apache-2.0
"""Communication kernels of parallel streams that together need more cores than the chip has."""

from torchair.tools._task_streams import deadlock_check, main_of_deadlock_check

__all__ = ["deadlock_check"]

if __name__ == "__main__":
    main_of_deadlock_check()
