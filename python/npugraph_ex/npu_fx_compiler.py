# SPDX-License-Identifier: Apache-2.0
"""Backend and compilers of npugraph_ex: torchair's, with the flat configuration."""

import copy
import functools

from torchair import _backend

from npugraph_ex.configs.compiler_config import CompilerConfig, _process_kwargs_options

__all__ = ["compile_fx", "get_compiler", "get_npu_backend"]


def get_npu_backend(*, compiler_config: CompilerConfig | None = None, custom_decompositions=None):
    """A backend for torch.compile. The configuration is read when a graph is compiled."""
    return functools.partial(
        _compile,
        compiler_config=_checked(compiler_config),
        decompositions=dict(custom_decompositions or {}),
    )


def _compile(graph_module, example_inputs, *, compiler_config, decompositions, options=None):
    return _backend.npu_backend(
        graph_module,
        example_inputs,
        compiler_config=_with(compiler_config, options).tree(),
        decompositions=decompositions,
        package="npugraph_ex",
    )


def get_compiler(compiler_config: CompilerConfig | None = None):
    """The bare compiler (graph module, example inputs) -> callable, for callers of AOTAutograd."""
    return functools.partial(_compile_graph, config=_checked(compiler_config))


def compile_fx(gm, example_inputs=None, options: dict | None = None):
    """One graph of AOTAutograd as a callable that takes the graph's inputs."""
    return _compile_graph(gm, example_inputs, config=_with(CompilerConfig(), options))


def _compile_graph(graph_module, example_inputs, *, config):
    return _backend.compile_graph(
        graph_module, example_inputs or (), config=config.tree(), package="npugraph_ex"
    )


def _checked(config: CompilerConfig | None) -> CompilerConfig:
    if config is None:
        return CompilerConfig()
    if not isinstance(config, CompilerConfig):
        raise TypeError(
            f"compiler_config: expected an npugraph_ex.CompilerConfig, but got "
            f"{type(config).__module__}.{type(config).__name__}"
        )
    return config


def _with(config: CompilerConfig, options: dict | None) -> CompilerConfig:
    """A copy with options in it: those of one compilation stay its own."""
    made = copy.deepcopy(config)
    _process_kwargs_options(made, {"options": options})
    return made
