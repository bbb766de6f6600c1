# SPDX-License-Identifier: Apache-2.0
"""Processes a script starts by spawning (torch.multiprocessing.spawn) are enabled too.

A new process unpickles what its parent's configuration holds before it runs anything: this object,
whose unpickling imports ditorch. Forked processes have everything anyway.
"""

from __future__ import annotations

import multiprocessing

from ditorch.patching import Patches


class Child:
    def __reduce__(self):
        return _enable, ()


def _enable() -> Child:
    import ditorch

    ditorch.enable()
    return Child()


def patch(patches: Patches) -> None:
    config = multiprocessing.current_process()._config
    config["ditorch"] = Child()
    patches.on_undo(lambda: config.pop("ditorch", None))
