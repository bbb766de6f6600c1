# SPDX-License-Identifier: Apache-2.0
"""Steps of optimisers, and checks for overflow."""

import torch

from torch_npu.ops import implements
from torch_npu.ops._check import floating, require, wide


def _check_state(name, grad, **state) -> None:
    floating(name, grad=grad, **state)
    for key, x in state.items():
        require(
            x is None or x.shape == grad.shape,
            f"{name}: {key} has shape {x if x is None else list(x.shape)}; it must be grad's {list(grad.shape)}.",
        )


def _write(var, m, v, new_var, new_m, new_v):
    var.copy_(new_var)
    m.copy_(new_m)
    v.copy_(new_v)
    return var, m, v


@implements("npu_apply_adam_w")
def npu_apply_adam_w(
    beta1_power,
    beta2_power,
    lr,
    weight_decay,
    beta1,
    beta2,
    epsilon,
    grad,
    max_grad_norm,
    amsgrad,
    maximize,
):
    require(False, "npu_apply_adam_w is not implemented for Tensor: give out=(var, m, v).")


@implements("npu_apply_adam_w.out")
def npu_apply_adam_w_out(
    beta1_power, beta2_power, lr, weight_decay, beta1, beta2, epsilon, grad, max_grad_norm, amsgrad,
    maximize, *, var, m, v,
):  # fmt: skip
    require(
        not amsgrad or max_grad_norm is not None,
        "npu_apply_adam_w: if amsgrad is true, max_grad_norm input must be entered",
    )
    _check_state("npu_apply_adam_w", grad, var=var, m=m, v=v, max_grad_norm=max_grad_norm)
    # beta1_power is beta1 ** (t - 1): the operator multiplies once more.
    p1, p2 = beta1_power * beta1, beta2_power * beta2
    g = -wide(grad) if maximize else wide(grad)
    new_m = wide(m) * beta1 + g * (1 - beta1)
    new_v = wide(v) * beta2 + g * g * (1 - beta2)
    second = new_v
    if amsgrad:
        second = torch.maximum(wide(max_grad_norm), new_v)
        max_grad_norm.copy_(second)
    root = torch.sqrt(second / (1 - p2)) + epsilon
    new_var = wide(var) * (1 - lr * weight_decay) - lr * new_m / (1 - p1) / root
    return _write(var, m, v, new_var, new_m, new_v)


@implements("npu_apply_adam")
def npu_apply_adam(
    beta1_power, beta2_power, lr, beta1, beta2, epsilon, grad, use_locking, use_nesterov
):
    require(False, "npu_apply_adam is not implemented for Tensor: give out=(var, m, v).")


@implements("npu_apply_adam.out")
def npu_apply_adam_out(
    beta1_power,
    beta2_power,
    lr,
    beta1,
    beta2,
    epsilon,
    grad,
    use_locking,
    use_nesterov,
    *,
    var,
    m,
    v,
):
    _check_state("npu_apply_adam", grad, var=var, m=m, v=v)
    rate = lr * (1 - beta2_power) ** 0.5 / (1 - beta1_power)
    g = wide(grad)
    new_m = wide(m) + (1 - beta1) * (g - wide(m))
    new_v = wide(v) + (1 - beta2) * (g * g - wide(v))
    ahead = new_m * beta1 + (1 - beta1) * g if use_nesterov else new_m
    return _write(var, m, v, wide(var) - rate * ahead / (torch.sqrt(new_v) + epsilon), new_m, new_v)


@implements("npu_bert_apply_adam")
def npu_bert_apply_adam(
    lr, beta1, beta2, epsilon, grad, max_grad_norm, global_grad_norm, weight_decay, step_size=None,
    adam_mode=0,
):  # fmt: skip
    require(False, "npu_bert_apply_adam is not implemented for Tensor: give out=(var, m, v).")


@implements("npu_bert_apply_adam.out")
def npu_bert_apply_adam_out(
    lr, beta1, beta2, epsilon, grad, max_grad_norm, global_grad_norm, weight_decay, step_size=None,
    adam_mode=0, *, var, m, v,
):  # fmt: skip
    """Without bias correction. Mode 0 clips the gradient by the global norm; mode 1 (mbart) does not."""
    name = "npu_bert_apply_adam"
    require(adam_mode in (0, 1), f"{name}: adam_mode is {adam_mode}; allowed: 0, 1.", "VALUE")
    _check_state(name, grad, var=var, m=m, v=v)
    g = wide(grad)
    if adam_mode == 0 and max_grad_norm > 0 and global_grad_norm > max_grad_norm:
        g = g * (max_grad_norm / global_grad_norm)
    new_m = wide(m) * beta1 + g * (1 - beta1)
    new_v = wide(v) * beta2 + g * g * (1 - beta2)
    step = new_m / (torch.sqrt(new_v) + epsilon)
    rate = lr if adam_mode == 0 or step_size is None else step_size
    return _write(var, m, v, wide(var) - rate * step - lr * weight_decay * wide(var), new_m, new_v)


def _bool_meta(scaled_grads):
    require(
        False,
        "_amp_foreach_non_finite_check: its answer depends on values, which are not known while tracing.",
    )


@implements("_amp_foreach_non_finite_check", meta=_bool_meta)
def _amp_foreach_non_finite_check(scaled_grads):
    return any(not bool(torch.isfinite(g).all()) for g in scaled_grads)


@implements("npu_alloc_float_status")
def npu_alloc_float_status(input):
    return input.new_zeros(8, dtype=torch.float32)


@implements("npu_get_float_status", "npu_clear_float_status")
def npu_get_float_status(input, mode=0):
    """Arithmetic here keeps infinities and has no overflow state."""
    return torch.zeros_like(input)
