# SPDX-License-Identifier: Apache-2.0
"""torch.compile(model) without a backend, for npu tensors.

Inductor generates code for a CPU twin of each graph (twin.py), which runs on the same bytes, after
the stream is drained (run.py). Random operators stay on the device (stay.py). Where host code
cannot read the device's memory, graphs go to the backend "npu" instead.
"""

import inspect
import warnings

import torch

_said: set[str] = set()


def compile_graph(module, inputs, patches: dict, region: str | None = None):
    """What Inductor's own entry does, for a graph with npu tensors."""
    from torch._functorch import config as functorch
    from torch._inductor.compile_fx import compile_fx

    if not _host_reads_memory():
        say_once(
            "torch.compile: the default backend 'inductor' generates host code, and host code "
            "cannot read this device's memory. Backend 'npu' is used."
        )
        return _npu_backend()(module, inputs)
    _refuse_ahead_of_time()
    patches = {**patches, "fallback_random": True}  # random numbers are those of eager mode
    more = {}
    if "compile_region_name" in inspect.signature(compile_fx).parameters:  # since torch 2.12
        more["compile_region_name"] = region
    # Its cache keeps what Inductor returns, not what runs it here.
    with functorch.patch(enable_autograd_cache=False):
        return compile_fx(module, inputs, inner_compile=_inner, config_patches=patches, **more)


def _inner(module, example_inputs, **kwargs):
    """One graph of AOTAutograd, as Inductor's compile_fx_inner takes it."""
    from torch._inductor.compile_fx import compile_fx_inner

    from . import run, twin, verdicts

    falling, gaps = verdicts.falling(module), verdicts.dtype_gaps(module)
    try:
        made = twin.of(module, example_inputs)
    except twin.NoTwin as why:
        say_once(
            f"torch.compile: a graph has no CPU twin for Inductor: {why}. Backend 'npu' runs it."
        )
        from torchair import get_compiler

        return get_compiler()(module, example_inputs)
    compiled = compile_fx_inner(made.module, made.inputs, **kwargs)
    return run.HostGraph(compiled, made, falling, gaps)


def _npu_backend():
    import torchair

    return torchair.get_npu_backend()


def _host_reads_memory() -> bool:
    from torch_npu import _C

    return _C._device_properties(torch.npu.current_device())["host_can_read"]


def _refuse_ahead_of_time() -> None:
    from torch._inductor.virtualized import V

    if V.aot_compilation:
        raise refusal(AHEAD_OF_TIME)


AHEAD_OF_TIME = (
    "AOTInductor: code made ahead of time is for one device type, and PyTorch's loader has none for "
    "npu. Move the model to the CPU before torch.export and compile that, or use "
    "torch.compile(model)."
)


def refusal(text: str) -> Exception:
    """An error that passes through Dynamo without its frames. Dynamo adds paragraphs to the
    arguments of whatever passes, so the text is kept apart."""
    from torch._dynamo.exc import ShortenTraceback

    class NotCompiledError(ShortenTraceback):
        def __str__(self) -> str:
            return text

    return NotCompiledError(text, first_useful_frame=inspect.currentframe())


def say_once(text: str) -> None:
    if text not in _said:
        _said.add(text)
        warnings.warn(text, stacklevel=3)
