# SPDX-License-Identifier: Apache-2.0
"""An `npu` device for PyTorch on any hardware, under torch_npu's names.

Importing registers the device and its Python side; it opens no driver, prints
nothing and does not fail when the driver would: that reason is raised at the
first use of the device.
"""

import sys


def _called_by_autoload() -> bool:
    """Whether `import torch` is loading us through the torch.backends entry point."""
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == "_import_device_backends":
            return True
        frame = frame.f_back
    return False


def _autoload() -> None:
    """Entry point of PyTorch's device backends: never raises.

    Where loading was refused (a CUDA build of torch, a build for another torch)
    the package is forgotten again, so that an explicit `import torch_npu` tries
    anew and, if it must, says why it cannot.
    """
    if _state == "refused":
        for name in [n for n in sys.modules if n.partition(".")[0] == __name__]:
            del sys.modules[name]


_state = "loading"
_by_autoload = _called_by_autoload()

# May call _autoload above, when torch_npu is imported before torch.
import torch  # noqa: E402


def _load() -> str:
    # In a CUDA build PrivateUse1 shadows CUDA (backward on cuda tensors
    # asserts), so there the user has to ask for us.
    if _by_autoload and (torch.version.cuda or torch.version.hip):
        return "refused"
    try:
        from torch_npu import _loader

        _loader.load()
    except Exception as error:
        if not _by_autoload:
            raise
        # PyTorch would only say, much later, that it does not know a device called npu.
        print(f"{error} `import torch` goes on without npu.", file=sys.stderr)
        return "refused"
    return "loaded"


_state = _load()

if _state == "loaded":
    from torch_npu import _dtypes, _exports, npu
    from torch_npu._build import torch_npu_version as __version__
    from torch_npu._dtypes import *  # noqa: F403
    from torch_npu._format import Format, get_npu_format
    from torch_npu._register import unsupported_dtype

    __all__ = [
        "Format", "get_npu_format", "npu", "unsupported_dtype", "__version__", *_dtypes.__all__,
    ]  # fmt: skip
    __getattr__ = _exports.lazy_attribute

    import os

    if os.environ.get("TORCH_TRANSFER_TO_NPU") == "1":
        import torch_npu.contrib.transfer_to_npu  # noqa: F401

    if os.environ.get("TORCH_NPU_SANITIZER", "0") not in ("", "0"):
        from torch_npu.npu import _sanitizer

        _sanitizer.enable_npu_sanitizer()
