# SPDX-License-Identifier: Apache-2.0
"""What a Python API's name says about it: views, in-place, random."""

from __future__ import annotations

import torch

_VIEWS = (
    "adjoint as_strided chunk detach diagonal expand expand_as hsplit imag indices movedim narrow "
    "permute real reshape select split split_with_sizes squeeze swapaxes swapdims t tensor_split "
    "transpose unbind unflatten unfold unsqueeze values view view_as view_as_real vsplit H T mH mT"
)
_RANDOM_METHODS = "bernoulli bernoulli_ cauchy_ exponential_ geometric_ log_normal_ multinomial normal_ random_ uniform_"
_RANDOM_FUNCTIONS = (
    "bernoulli binomial multinomial normal poisson rand rand_like randint randint_like randn "
    "randn_like randperm"
)
_RANDOM_INITS = (
    "kaiming_normal kaiming_normal_ kaiming_uniform kaiming_uniform_ normal normal_ orthogonal "
    "orthogonal_ sparse sparse_ trunc_normal_ uniform uniform_ xavier_normal xavier_normal_ "
    "xavier_uniform xavier_uniform_"
)
_STOCHASTIC = (
    "alpha_dropout dropout dropout1d dropout2d dropout3d feature_alpha_dropout fractional_max_pool2d "
    "fractional_max_pool2d_with_indices fractional_max_pool3d fractional_max_pool3d_with_indices "
    "gumbel_softmax multi_head_attention_forward rrelu rrelu_ scaled_dot_product_attention"
)
_STOCHASTIC_TORCH = (
    "alpha_dropout alpha_dropout_ dropout dropout_ feature_alpha_dropout feature_dropout "
    "feature_dropout_ gru lstm native_dropout rnn_relu rnn_tanh rrelu rrelu_"
)

VIEW_OPS = [f"torch.Tensor.{name}" for name in _VIEWS.split()]
RANDOM_NUMBER_GEN_OPS = (
    [f"torch.Tensor.{name}" for name in _RANDOM_METHODS.split()]
    + [f"torch.{name}" for name in _RANDOM_FUNCTIONS.split()]
    + [f"torch.nn.init.{name}" for name in _RANDOM_INITS.split()]
)
# Draw random numbers only with some arguments (p > 0, training): judged per call.
STOCHASTIC_OPS = frozenset(
    [f"torch.nn.functional.{name}" for name in _STOCHASTIC.split()]
    + [f"torch.{name}" for name in _STOCHASTIC_TORCH.split()]
)
_CASTS = frozenset(
    f"torch.Tensor.{name}" for name in "double float half bfloat16 long int short bool".split()
)
_IN_PLACE = frozenset(f"torch.Tensor.{name}" for name in ("__setitem__", "to", "contiguous"))


# Their results hold whatever was in memory.
_UNINITIALISED = ("torch.empty", "torch.Tensor.new_empty", "torch.Tensor.resize")


def is_uninitialised(name: str) -> bool:
    return name.startswith(_UNINITIALISED)


def moved_to(name: str) -> str | None:
    """The device type a method is named after: `torch.Tensor.cuda`."""
    method = name.removeprefix("torch.Tensor.")
    known = ("cpu", "cuda", "xpu", torch._C._get_privateuse1_backend_name())
    return method if method != name and method in known else None


def is_view_op(name: str) -> bool:
    return name in VIEW_OPS


def is_random_number_gen_op(name: str) -> bool:
    return name in RANDOM_NUMBER_GEN_OPS


def is_stochastic_op(name: str) -> bool:
    """May this function draw random numbers?"""
    return name in RANDOM_NUMBER_GEN_OPS or name in STOCHASTIC_OPS


def is_inplace_op(name: str, *args: object, **kwargs: object) -> bool:
    """May this call write, or return, one of its arguments?"""
    out = kwargs.get("out")
    if out is not None and any(out is value for value in args):
        return True
    if kwargs.get("inplace") is True or name in _IN_PLACE:
        return True
    return name.startswith("torch.Tensor.") and name.endswith("_") and not name.endswith("__")


def is_dtype_cast_op(name: str, *args: object, **kwargs: object) -> bool:
    """Does this call say which dtype its result has?"""
    if name in _CASTS or kwargs.get("dtype") is not None:
        return True
    return any(isinstance(value, torch.dtype) for value in args)
