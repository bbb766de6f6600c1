# SPDX-License-Identifier: Apache-2.0
"""torch.compile on npu tensors: what its default backend cannot do is said in one line."""

import functools

import torch

_TEXT = (
    "torch.compile: the default backend 'inductor' generates no code for npu devices. Use "
    'torch.compile(model, backend="aot_eager") or backend="eager".'
)


def refuse_inductor_on_npu() -> None:
    """Inductor looks the device up in its tables, deep inside, and ends in a KeyError."""
    wrapper = torch._TorchCompileInductorWrapper
    original = wrapper.__call__

    @functools.wraps(original)
    def call(self, model_, inputs_, **kwargs):
        if _uses_npu(model_, inputs_):
            _raise()
        return original(self, model_, inputs_, **kwargs)

    wrapper.__call__ = call


def _uses_npu(graph_module, inputs) -> bool:
    values = list(inputs)
    values += [node.meta.get("example_value") for node in graph_module.graph.nodes]
    return any(isinstance(value, torch.Tensor) and value.is_npu for value in values)


def _raise() -> None:
    import inspect

    from torch._dynamo.exc import ShortenTraceback

    # A ShortenTraceback passes through Dynamo without its frames; Dynamo adds
    # paragraphs to the arguments of whatever passes, so the text is kept apart.
    class NoCompilerBackendError(ShortenTraceback):
        def __str__(self) -> str:
            return _TEXT

    raise NoCompilerBackendError(_TEXT, first_useful_frame=inspect.currentframe())
