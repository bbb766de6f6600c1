# SPDX-License-Identifier: Apache-2.0
"""amp.initialize: models, optimizers and loss scales for one of the levels O0 to O3."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from apex.amp import _optimizer
from apex.amp._levels import choose
from apex.amp._loss_scaler import LossScaler
from apex.amp._state import DEVICE, say, state


def initialize(
    models,
    optimizers=None,
    enabled=True,
    opt_level="O1",
    cast_model_type=None,
    patch_torch_functions=None,
    keep_batchnorm_fp32=None,
    master_weights=None,
    loss_scale=None,
    cast_model_outputs=None,
    num_losses=1,
    verbosity=1,
    min_loss_scale=None,
    max_loss_scale=2.0**24,
    combine_grad=None,
    combine_ddp=None,
    ddp_replica_count=4,
    check_combined_tensors=None,
    user_cast_preferred=None,
    dynamic_init_scale=2.0**16,
    scale_growth_factor=2.0,
    scale_backoff_factor=0.5,
    scale_window=2000,
):
    """Models and optimizers in the form they were given, ready for the level.

    `check_combined_tensors` and `user_cast_preferred` are taken for programs that pass them:
    combined gradients are always checked, and a type that a function is given explicitly always wins.
    """
    state.verbosity = verbosity
    state.choices = choose(
        opt_level,
        {
            "cast_model_type": cast_model_type,
            "patch_torch_functions": patch_torch_functions,
            "keep_batchnorm_fp32": keep_batchnorm_fp32,
            "master_weights": master_weights,
            "loss_scale": loss_scale,
            "combine_grad": combine_grad,
            "combine_ddp": combine_ddp,
            "ddp_replica_count": ddp_replica_count,
        },
    )
    state.choices_enabled = enabled
    if not enabled:
        return models if optimizers is None else (models, optimizers)
    if not isinstance(num_losses, int) or num_losses < 1:
        raise RuntimeError(f"amp.initialize: num_losses is {num_losses!r}; 1 or more is expected.")
    for model in _listed(models, nn.Module, "a model"):
        _prepare_model(model, cast_model_outputs)
    for optimizer in _listed(optimizers, torch.optim.Optimizer, "an optimizer"):
        _optimizer.prepare(optimizer)
    state.scalers = [
        LossScaler(
            state.choices.loss_scale,
            init_scale=dynamic_init_scale,
            growth_factor=scale_growth_factor,
            backoff_factor=scale_backoff_factor,
            scale_window=scale_window,
            min_loss_scale=min_loss_scale,
            max_loss_scale=max_loss_scale,
        )
        for _ in range(num_losses)
    ]
    torch.set_autocast_dtype(DEVICE, torch.float16)
    casts = bool(state.choices.patch_torch_functions)
    torch.set_autocast_enabled(DEVICE, casts)
    # Cast weights are kept until autocast ends, and this one does not: they would grow old.
    torch.set_autocast_cache_enabled(not casts)
    say(f"amp: {opt_level}, loss scale {state.choices.loss_scale}")
    return models if optimizers is None else (models, optimizers)


def _listed(given, kind: type, what: str) -> list:
    if given is None:
        return []
    items = given if isinstance(given, list | tuple) else [given]
    for item in items:
        if not isinstance(item, kind):
            raise TypeError(f"amp.initialize: {what} is expected, not {type(item).__name__}.")
    return list(items)


def _prepare_model(model: nn.Module, cast_model_outputs: torch.dtype | None) -> None:
    if isinstance(model, nn.parallel.DistributedDataParallel | nn.DataParallel):
        raise RuntimeError(
            f"amp.initialize: the model is a {type(model).__name__} already; call amp.initialize "
            "first, then wrap its answer."
        )
    low = state.choices.cast_model_type
    if low is not None:
        if low != torch.float32:
            _check_float32(model)
        _cast_weights(model, low, bool(state.choices.keep_batchnorm_fp32))
        model.register_forward_pre_hook(_CastInputs(low), prepend=True, with_kwargs=True)
    wide = cast_model_outputs or (torch.float32 if low is not None else None)
    if wide is not None:
        model.register_forward_hook(_CastOutputs(wide))
    if state.choices.opt_level == "O2":
        model.register_state_dict_post_hook(_float32_state)


def _check_float32(model: nn.Module) -> None:
    for name, p in model.named_parameters():
        if p.is_floating_point() and p.dtype != torch.float32:
            raise RuntimeError(
                f"amp.initialize: parameter {name} is {p.dtype}; give a float32 model, amp casts it."
            )


@torch.no_grad()
def _cast_weights(model: nn.Module, dtype: torch.dtype, keep_batchnorm: bool) -> None:
    for module in model.modules():
        if keep_batchnorm and isinstance(module, _BatchNorm) and module.affine:
            continue
        for p in module.parameters(recurse=False):
            if p.is_floating_point():
                p.data = p.data.to(dtype)
                p.grad = None
        for name, buffer in module.named_buffers(recurse=False):
            if buffer.is_floating_point():
                module._buffers[name] = buffer.to(dtype)


def _cast(value, dtype: torch.dtype):
    if isinstance(value, torch.Tensor):
        return value.to(dtype) if value.is_floating_point() else value
    if isinstance(value, dict):
        return type(value)((k, _cast(v, dtype)) for k, v in value.items())
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_cast(v, dtype) for v in value))
    if isinstance(value, list | tuple):
        return type(value)(_cast(v, dtype) for v in value)
    return value


class _CastInputs:
    """A hook that can be copied and saved with its model."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype

    def __call__(self, module, args, kwargs):
        return _cast(args, self.dtype), _cast(kwargs, self.dtype)


class _CastOutputs:
    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype

    def __call__(self, module, args, output):
        return _cast(output, self.dtype)


def _float32_state(module, saved, prefix, local_metadata) -> None:
    """A checkpoint of a model under O2 is one of the float32 model."""
    for key, value in saved.items():
        if key.startswith(prefix) and value.dtype == torch.float16:
            saved[key] = value.float()
