# SPDX-License-Identifier: Apache-2.0
"""TorchAir as a backend of torch.compile: Dynamo's graphs through AOTAutograd to programs."""

import functools

from torchair import _modes
from torchair._compiler import Compiler
from torchair.configs.compiler_config import CompilerConfig


def get_npu_backend(
    *,
    compiler_config: CompilerConfig | None = None,
    custom_decompositions=None,
    strict: bool = False,
):
    """A backend for torch.compile. The configuration is read when a graph is compiled. With
    `strict`, a graph with calls that would leave the engine is refused, all of them listed."""
    config = _checked(compiler_config)
    _modes.check(config)
    backend = functools.partial(
        npu_backend,
        compiler_config=config,
        decompositions=dict(custom_decompositions or {}),
        strict=strict,
    )
    backend.explain = functools.partial(_explain, backend)
    return backend


def _checked(config: CompilerConfig | None) -> CompilerConfig:
    if config is None:
        return CompilerConfig()
    if not isinstance(config, CompilerConfig):
        raise TypeError(
            f"compiler_config: expected a CompilerConfig, but got {type(config).__name__}"
        )
    return config


def _explain(backend, model):
    """`backend.explain(model)(*args)`: a report of what of `model` goes into graphs."""
    from torchair import _explain

    return _explain.explain(backend, model)


def get_compiler(compiler_config: CompilerConfig | None = None):
    """The bare compiler (graph module, example inputs) -> callable, for callers of AOTAutograd."""
    return functools.partial(compile_graph, config=_checked(compiler_config))


def compile_graph(graph_module, example_inputs, *, config, package: str = "torchair"):
    """One graph of AOTAutograd. What it gives takes the inputs, or one list of them, which it
    empties."""
    compiler = Compiler(config, package=package)
    run = compiler.compile(graph_module, example_inputs, phase="inference")
    (output,) = (n for n in graph_module.graph.nodes if n.op == "output")
    one = not isinstance(output.args[0], (list, tuple))

    def call(*args):
        if len(args) == 1 and type(args[0]) is list:
            return run(args[0])
        results = run(list(args))
        return results[0] if one and isinstance(results, (list, tuple)) else results

    vars(call).update(vars(run))  # boxed, and the program of a compiled graph
    return call


def npu_backend(
    graph_module,
    example_inputs,
    *,
    compiler_config,
    decompositions,
    strict=False,
    observer=None,
    options=None,
    package: str = "torchair",
):
    """`package`: whose register_replacement counts."""
    if options:
        compiler_config = _modes.with_options(compiler_config, options)
    gears = _gears_of(graph_module, compiler_config)
    compiler = Compiler(
        compiler_config, strict, observer, recordings=len(gears or ()), package=package
    )
    experimental = compiler_config.experimental_config
    from torch._dynamo.backends.common import aot_autograd

    run = aot_autograd(
        fw_compiler=functools.partial(compiler.compile, phase="forward"),
        bw_compiler=functools.partial(compiler.compile, phase="backward"),
        inference_compiler=functools.partial(compiler.compile, phase="inference"),
        partition_fn=compiler.partition,
        decompositions=decompositions,
        keep_inference_input_mutations=bool(experimental.keep_inference_input_mutations),
    )(graph_module, example_inputs)
    run = run if gears is None else _geared(run, gears)
    return _guarded(run, graph_module) if compiler.mutates else run


def _gears_of(graph_module, config) -> list[dict] | None:
    """The calls foreseen by torchair.inference.set_dim_gears, by the graph's inputs."""
    import sys

    gears = sys.modules.get("torchair.inference._gears")
    if gears is None:
        return None
    places = [node for node in graph_module.graph.nodes if node.op == "placeholder"]
    given = [getattr(node.meta.get("grapharg"), "example", None) for node in places]
    return gears.merged(given, config.inference_config.dynamic_gears_merge_policy.value)


def _geared(run, gears: list[dict]):
    from torchair._compiler import without_recording

    places = list(gears[0])
    foreseen = {tuple(row.values()) for row in gears}

    def call(*args):
        if tuple(args[i].shape[dim] for i, dim in places) in foreseen:
            return run(*args)
        with without_recording():
            return run(*args)

    return call


def _guarded(run, graph_module):
    """Dynamo does not compile again when arguments begin to overlap, or cease to. A graph that
    writes its inputs is then another one: it runs as Dynamo traced it."""
    from torch_npu import _C

    share = _C._graph_share_memory
    first = None

    def call(*args):
        nonlocal first
        shared = share(args)
        if first is None:
            first = shared
        return run(*args) if shared == first else graph_module(*args)

    return call


# What `torch.compile(backend="npu")` and `backend="npugraph_ex"` find by entry points.
def npu(graph_module, example_inputs, **kwargs):
    return get_npu_backend()(graph_module, example_inputs, **kwargs)


def npugraph_ex(graph_module, example_inputs, **kwargs):
    from npugraph_ex import get_npu_backend

    return get_npu_backend()(graph_module, example_inputs, **kwargs)
