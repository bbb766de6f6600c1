# SPDX-License-Identifier: Apache-2.0
"""How transfer_to_npu makes "cuda" mean "npu"."""

_done = False


def patch_all() -> None:
    global _done
    if _done:
        return
    _done = True
    from . import _cuda_module, _functions, _libraries

    _functions.patch()
    _cuda_module.patch()
    _libraries.patch()
