# SPDX-License-Identifier: Apache-2.0
"""Functions and modules whose forward and backward are replays of captured graphs."""

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten


def make_graphed_callables(
    callables, sample_args, num_warmup_iters: int = 3, allow_unused_input: bool = False, pool=None
):
    """Each callable with its forward and backward captured on `sample_args`; their shapes, and
    which of them need gradients, are then fixed."""
    if torch.is_autocast_enabled() and torch.is_autocast_cache_enabled():
        raise RuntimeError(
            "make_graphed_callables does not support the autocast caching. "
            "Please set `cache_enabled=False`."
        )
    single = not isinstance(callables, tuple)
    functions = (callables,) if single else callables
    samples = (sample_args,) if single else sample_args
    for function, sample in zip(functions, samples):
        _check(function, sample)
    pool = pool or torch.npu.graph_pool_handle()
    for function, sample in zip(functions, samples):
        _warm_up(function, sample, num_warmup_iters, allow_unused_input)
    made = [_Graphed(f, s, allow_unused_input, pool) for f, s in zip(functions, samples)]
    # Memory of a graph is reused in the order of the passes: backwards the other way round.
    for graphed in reversed(made):
        graphed.capture_backward()
    results = tuple(g.installed() for g in made)
    return results[0] if single else results


def _check(function, sample) -> None:
    if isinstance(function, torch.nn.Module):
        hooks = (function._backward_hooks, function._forward_hooks, function._forward_pre_hooks)
        assert not any(hooks), (
            "Modules must not have hooks registered at the time they are passed. However, "
            "registering hooks on modules after passing them through make_graphed_callables is allowed."
        )
        assert not any(b.requires_grad for b in function.buffers()), (
            "In any :class:`~torch.nn.Module` passed to :func:`~make_graphed_callables`, only "
            "parameters may be trainable. All buffers must have ``requires_grad=False``."
        )
    assert all(isinstance(a, torch.Tensor) for a in tree_flatten(sample)[0]), (
        "In the beta API, sample_args for each callable must contain only Tensors. Other types are "
        "not allowed."
    )


def _parameters(function) -> tuple:
    return tuple(function.parameters()) if isinstance(function, torch.nn.Module) else ()


def _warm_up(function, sample, times: int, allow_unused: bool) -> None:
    """Creates lazy state outside of the graphs. Side effects are not undone:
    as with torch.cuda, samples and buffers see these calls."""
    torch.npu.synchronize()
    with torch.npu.stream(torch.npu.Stream()):
        for _ in range(times):
            outputs = [o for o in tree_flatten(function(*sample))[0] if o.requires_grad]
            inputs = [
                i for i in (*tree_flatten(sample)[0], *_parameters(function)) if i.requires_grad
            ]
            if outputs and inputs:
                torch.autograd.grad(
                    outputs,
                    inputs,
                    [torch.empty_like(o) for o in outputs],
                    allow_unused=allow_unused,
                )
    torch.npu.synchronize()


class _Graphed:
    def __init__(self, function, sample, allow_unused: bool, pool):
        self._function = function
        self._allow_unused = allow_unused
        self._pool = pool
        self._parameters = _parameters(function)
        self._static = tree_flatten(sample)[0]
        self._inputs = (*self._static, *self._parameters)
        self._forward = torch.npu.NPUGraph()
        with torch.npu.graph(self._forward, pool=pool):
            outputs = function(*sample)
        self._outputs, self._tree = tree_flatten(outputs)
        self._backward = None
        self._training = getattr(function, "training", True)

    def capture_backward(self) -> None:
        outputs = [o for o in self._outputs if o.requires_grad]
        inputs = [i for i in self._inputs if i.requires_grad]
        self._given = [torch.empty_like(o) if o.requires_grad else None for o in self._outputs]
        found = ()
        if outputs and inputs:
            self._backward = torch.npu.NPUGraph()
            with torch.npu.graph(self._backward, pool=self._pool):
                found = torch.autograd.grad(
                    outputs, inputs, [g for g in self._given if g is not None],
                    allow_unused=self._allow_unused,
                )  # fmt: skip
        found = iter(found)
        self._gradients = tuple(next(found) if i.requires_grad else None for i in self._inputs)
        self._outputs = [o.detach() for o in self._outputs]

    def installed(self):
        """The module with its forward replaced, or a function."""
        call = self._caller()
        if not isinstance(self._function, torch.nn.Module):
            return call
        module, original, training = self._function, self._function.forward, self._training

        def forward(*args):
            # Captured in one mode; the other one runs as it always did.
            return call(*args) if module.training == training else original(*args)

        module.forward = forward
        return module

    def _caller(self):
        me, n = self, len(self._static)

        class Replay(torch.autograd.Function):
            @staticmethod
            def forward(ctx, *inputs):
                for static, given in zip(me._static, inputs[:n]):
                    if static.data_ptr() != given.data_ptr():
                        static.copy_(given)
                me._forward.replay()
                return tuple(o.detach() for o in me._outputs)

            @staticmethod
            @torch.autograd.function.once_differentiable
            def backward(ctx, *gradients):
                for static, given in zip(me._given, gradients):
                    if static is not None and given is not None:
                        static.copy_(given)
                if me._backward is not None:
                    me._backward.replay()
                # Copies: autograd keeps what it gets as the parameter's gradient.
                return tuple(None if g is None else g.clone() for g in me._gradients)

        def call(*args):
            results = Replay.apply(*tree_flatten(args)[0], *me._parameters)
            return tree_unflatten(list(results), me._tree)

        return call
