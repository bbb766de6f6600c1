# SPDX-License-Identifier: Apache-2.0
"""Operators that are gradients of others: by their formula, or by autograd through the forward function."""

import torch
import torch.nn.functional as F

from torch_npu.ops import detection, implements
from torch_npu.ops._check import require, wide


def _through(forward, inputs, grad, count=None):
    """Gradients of forward(*inputs) with respect to its first `count` tensors."""
    leaves = [x.detach().requires_grad_() for x in inputs[: count or len(inputs)]]
    with torch.enable_grad():
        out = forward(*leaves, *inputs[len(leaves) :])
        grads = torch.autograd.grad(out, leaves, grad.to(out.dtype), allow_unused=True)
    return [torch.zeros_like(x) if g is None else g for x, g in zip(leaves, grads)]


def _reduced(grad, reduction: int, count: int, name: str):
    require(
        reduction in (0, 1, 2),
        f"{name}: reduction is {reduction}; allowed: 0 (none), 1 (mean), 2 (sum).",
        "VALUE",
    )
    return grad / count if reduction == 1 else grad


# ---- norms
def _layer_grad(grad, z, mean, rstd, gamma, name):
    """(dz, dgamma, dbeta) of y = (z - mean) * rstd * gamma + beta, in wide dtype."""
    count = gamma.dim()
    require(
        0 < count <= z.dim() and z.shape[z.dim() - count :] == gamma.shape,
        f"{name}: gamma has shape {list(gamma.shape)}, which must be the last sizes of {list(z.shape)}.",
    )
    dims, rest = list(range(-count, 0)), list(range(z.dim() - count))
    normal = (z - wide(mean)) * wide(rstd)
    g = wide(grad) * wide(gamma)
    along = (g * normal).mean(dims, keepdim=True)
    dz = wide(rstd) * (g - g.mean(dims, keepdim=True) - normal * along)
    dgamma, dbeta = wide(grad) * normal, wide(grad)
    if rest:
        dgamma, dbeta = dgamma.sum(rest), dbeta.sum(rest)
    return dz, dgamma, dbeta


@implements("npu_layernorm_grad")
def npu_layernorm_grad(grad_out, input, normalized_shape, mean, rstd, weight, bias):
    name = "npu_layernorm_grad"
    gamma = input.new_ones(normalized_shape) if weight is None else weight
    require(
        list(gamma.shape) == list(normalized_shape),
        f"{name}: weight has shape {list(gamma.shape)}, but normalized_shape is {list(normalized_shape)}.",
    )
    dx, dgamma, dbeta = _layer_grad(grad_out, wide(input), mean, rstd, gamma, name)
    return dx.to(input.dtype), dgamma.to(gamma.dtype), dbeta.to(gamma.dtype)


@implements("npu_add_layer_norm_backward")
def npu_add_layer_norm_backward(dy_opt, x1, x2, rstd, mean, gamma, dsum_opt):
    """(dx1, dx2, dgamma, dbeta)"""
    z = wide(x1) + wide(x2)
    grad = torch.zeros_like(z) if dy_opt is None else dy_opt
    dz, dgamma, dbeta = _layer_grad(grad, z, mean, rstd, gamma, "npu_add_layer_norm_backward")
    dz = dz if dsum_opt is None else dz + wide(dsum_opt)
    return dz.to(x1.dtype), dz.to(x2.dtype), dgamma.float(), dbeta.float()


@implements("npu_deep_norm_backward")
def npu_deep_norm_backward(dy, x, gx, gamma, mean, rstd, alpha=0.3):
    """(dx, dgx, dbeta, dgamma), as the arguments of npu_deep_norm stand"""
    z = wide(x) * alpha + wide(gx)
    dz, dgamma, dbeta = _layer_grad(dy, z, mean, rstd, gamma, "npu_deep_norm_backward")
    return (dz * alpha).to(x.dtype), dz.to(gx.dtype), dbeta.float(), dgamma.float()


@implements("npu_group_norm_swish_grad")
def npu_group_norm_swish_grad(
    grad, input, num_groups, weight, bias, mean, rstd, grad_input_mask, swish_scale=1.0
):
    name = "npu_group_norm_swish_grad"
    require(
        input.dim() >= 2 and num_groups > 0 and input.size(1) % num_groups == 0,
        f"{name}: num_groups is {num_groups}, which must divide the channels of {list(input.shape)}.",
    )
    shape = (1, -1) + (1,) * (input.dim() - 2)
    rows = wide(input).reshape(input.size(0), num_groups, -1)
    r = wide(rstd).unsqueeze(-1)
    normal = (rows - wide(mean).unsqueeze(-1)) * r
    y = normal.reshape(input.shape) * wide(weight).reshape(shape) + wide(bias).reshape(shape)
    s = torch.sigmoid(y * swish_scale)
    dy = wide(grad) * (s + y * swish_scale * s * (1 - s))
    g = (dy * wide(weight).reshape(shape)).reshape(rows.shape)
    dx = r * (g - g.mean(-1, keepdim=True) - normal * (g * normal).mean(-1, keepdim=True))
    rest = [0, *range(2, input.dim())]
    found = (
        dx.reshape(input.shape).to(input.dtype),
        (dy * normal.reshape(input.shape)).sum(rest).to(weight.dtype),
        dy.sum(rest).to(bias.dtype),
    )
    return tuple(x if wanted else x.new_empty(0) for x, wanted in zip(found, grad_input_mask))


# ---- losses
@implements("npu_cross_entropy_loss_backward")
def npu_cross_entropy_loss_backward(
    grad_loss, log_prob, target, weight=None, grad_zloss=None, lse_for_zloss=None, reduction="mean",
    ignore_index=-100, label_smoothing=0.0, lse_square_scale_for_zloss=0.0,
):  # fmt: skip
    name = "npu_cross_entropy_loss_backward"
    require(
        reduction in ("mean", "sum", "none"),
        f"{name}: reduction is {reduction}; allowed: mean, sum, none.",
        "VALUE",
    )
    classes = log_prob.size(1)
    target = target.to(torch.int64)
    kept = target != ignore_index
    at = torch.where(kept, target, torch.zeros_like(target))
    w = wide(log_prob).new_ones(classes) if weight is None else wide(weight)
    own = torch.where(kept, w.index_select(0, at), w.new_zeros(()))
    # Each row's loss is -sum over classes of share * log_prob.
    share = F.one_hot(at, classes).to(w.dtype) * own.unsqueeze(1) * (1 - label_smoothing)
    share = share + kept.unsqueeze(1) * (w * (label_smoothing / classes))
    grad = wide(grad_loss).reshape(-1, 1)
    if reduction == "mean":
        grad = grad / own.sum()
    p = torch.exp(wide(log_prob))
    return (grad * (p * share.sum(1, keepdim=True) - share)).to(log_prob.dtype)


@implements("npu_binary_cross_entropy_with_logits_backward")
def npu_binary_cross_entropy_with_logits_backward(
    grad_output, input, target, weight_opt, pos_weight_opt, reduction
):
    name = "npu_binary_cross_entropy_with_logits_backward"
    x, t = wide(input), wide(target)
    ones = t if pos_weight_opt is None else t * wide(pos_weight_opt)
    grad = ((ones + 1 - t) * torch.sigmoid(x) - ones) * wide(grad_output)
    grad = grad if weight_opt is None else grad * wide(weight_opt)
    return _reduced(grad, reduction, input.numel(), name).to(input.dtype)


@implements("kl_div_backward")
def kl_div_backward(grad_output, input, target, reduction=1, *, log_target=False):
    t = wide(target)
    grad = -(torch.exp(t) if log_target else t.clamp(min=0)) * wide(grad_output)
    return _reduced(grad, reduction, input.numel(), "kl_div_backward").to(input.dtype)


@implements("kl_div_target_backward")
def kl_div_target_backward(grad_output, input, target, reduction=1, *, log_target=False):
    x, t = wide(input), wide(target)
    if log_target:
        grad = torch.exp(t) * (t + 1 - x)
    else:
        whole = torch.where(t > 0, t, torch.ones_like(t))
        grad = torch.where(t > 0, torch.log(whole) + 1 - x, torch.zeros_like(t))
    grad = grad * wide(grad_output)
    return _reduced(grad, reduction, input.numel(), "kl_div_target_backward").to(target.dtype)


@implements("npu_renorm_backward")
def npu_renorm_backward(grad, input, p, dim, maxnorm):
    require(
        -input.dim() <= dim < input.dim(),
        f"npu_renorm_backward: dim is {dim}; input has {input.dim()} dimensions.",
        "VALUE",
    )
    require(maxnorm >= 0, f"npu_renorm_backward: maxnorm is {maxnorm}; it must be >= 0.", "VALUE")
    rest = [d for d in range(input.dim()) if d != dim % input.dim()]

    def renorm(x):
        norm = torch.linalg.vector_norm(x, p, rest, keepdim=True)
        return torch.where(norm > maxnorm, x * (maxnorm / (norm + 1e-7)), x)

    return _through(renorm, [wide(input)], wide(grad))[0].to(input.dtype)


# ---- gathers and shapes
@implements("npu_gather_backward")
def npu_gather_backward(grad, self_size, dim, index, sparse_grad):
    return wide(grad).new_zeros(self_size).scatter_add(dim, index, wide(grad)).to(grad.dtype)


@implements("npu_gather_sparse_index_backward")
def npu_gather_sparse_index_backward(grad, self_sizes, index):
    rows = wide(grad).reshape(-1, *self_sizes[1:])
    out = rows.new_zeros(self_sizes).index_add(0, index.flatten().to(torch.int64), rows)
    return out.to(grad.dtype)


@implements("repeat_interleave_backward_int")
def repeat_interleave_backward_int(grad, input, repeats, dim=None):
    require(repeats > 0, f"repeat_interleave_backward_int: repeats is {repeats}; it must be > 0.")
    if dim is None:
        return wide(grad).reshape(*input.shape, repeats).sum(-1).to(grad.dtype)
    return wide(grad).unflatten(dim, (-1, repeats)).sum(dim % input.dim() + 1).to(grad.dtype)


@implements("repeat_interleave_backward_tensor")
def repeat_interleave_backward_tensor(grad, input, repeats, dim=None):
    at = 0 if dim is None else dim % input.dim()
    size = input.numel() if dim is None else input.size(at)
    require(
        repeats.numel() in (1, size),
        f"repeat_interleave_backward_tensor: repeats has {repeats.numel()} numbers; the input has {size} along dim.",
    )
    count = grad.numel() if dim is None else grad.size(at)
    ends = torch.cumsum(repeats.to(torch.int64).expand(size), 0)
    rows = torch.arange(count, device=grad.device)
    source = torch.searchsorted(ends, rows, right=True)
    shape = [size] if dim is None else list(input.shape)
    out = (
        wide(grad)
        .new_zeros(shape)
        .index_add(at, source, wide(grad).reshape(-1) if dim is None else wide(grad))
    )
    return out.reshape(input.shape).to(grad.dtype)


@implements("npu_confusion_transpose_backward")
def npu_confusion_transpose_backward(grad, perm, shape, transpose_first):
    """`shape` is that of the forward operator's input; transpose_first says what this operator does first"""
    back = [0] * len(perm)
    for i, p in enumerate(perm):
        require(
            0 <= p < len(perm),
            f"npu_confusion_transpose_backward: perm is {list(perm)}; it must hold 0 to {len(perm) - 1}.",
        )
        back[p] = i
    if transpose_first:
        return grad.permute(back).reshape(shape).contiguous()
    return grad.reshape([shape[p] for p in perm]).permute(back).contiguous()


# ---- products
def _product_like(product, size):
    extra = product.dim() - len(size)
    product = product.sum(list(range(extra))) if extra > 0 else product
    dims = [d for d, n in enumerate(size) if n == 1 and product.size(d) != 1]
    return product.sum(dims, keepdim=True) if dims else product


@implements("npu_bmm_v2_mat1_backward")
def npu_bmm_v2_mat1_backward(grad, mat1, mat2, size):
    shape = (
        *torch.broadcast_shapes(mat1.shape[:-2], mat2.shape[:-2]),
        mat1.size(-2),
        mat2.size(-1),
    )
    product = wide(grad).reshape(shape) @ wide(mat2).transpose(-1, -2)
    return _product_like(product, list(size)).to(grad.dtype)


@implements("npu_bmm_v2_mat2_backward")
def npu_bmm_v2_mat2_backward(grad, mat1, mat2, size):
    shape = (
        *torch.broadcast_shapes(mat1.shape[:-2], mat2.shape[:-2]),
        mat1.size(-2),
        mat2.size(-1),
    )
    product = wide(mat1).transpose(-1, -2) @ wide(grad).reshape(shape)
    return _product_like(product, list(size)).to(grad.dtype)


@implements("matmul_double_backward")
def matmul_double_backward(grad_self, grad_other, grad_out, input, other, mask):
    """(gradient of grad_out, of input, of other)"""
    empty = input.new_empty(0)
    of_out = of_input = of_other = None
    for given, left in ((grad_self, True), (grad_other, False)):
        if given is None:
            continue
        part = torch.matmul(given, other) if left else torch.matmul(input, given)
        of_out = part if of_out is None else of_out + part
    if grad_other is not None:
        of_input = torch.matmul(grad_out, grad_other.transpose(-1, -2)).sum_to_size(input.shape)
    if grad_self is not None:
        of_other = torch.matmul(grad_self.transpose(-1, -2), grad_out).sum_to_size(other.shape)
    zeros = (torch.zeros_like(grad_out), torch.zeros_like(input), torch.zeros_like(other))
    return tuple(
        empty if not wanted else zero if found is None else found
        for found, zero, wanted in zip((of_out, of_input, of_other), zeros, mask)
    )


# ---- convolutions
def _conv_grads(grad, input, weight, stride, padding, dilation, groups, mask, *, transposed=False, output_padding=(0, 0)):  # fmt: skip
    return torch.ops.aten.convolution_backward(
        grad, input, weight, [weight.size(1) * groups if transposed else weight.size(0)], stride,
        padding, dilation, transposed, list(output_padding), groups, list(mask),
    )  # fmt: skip


def _check_kernel(name, weight, kernel_size) -> None:
    require(
        list(weight.shape[-2:]) == list(kernel_size),
        f"{name}: kernel_size is {list(kernel_size)}, but weight has {list(weight.shape[-2:])}.",
    )


@implements("_conv_depthwise2d_backward")
def _conv_depthwise2d_backward(grad_output, input, weight, kernel_size, stride, padding, dilation, output_mask):  # fmt: skip
    _check_kernel("_conv_depthwise2d_backward", weight, kernel_size)
    dx, dw, _ = _conv_grads(
        grad_output, input, weight, stride, padding, dilation, input.size(1), [*output_mask, False]
    )
    return dx, dw


@implements("slow_conv_dilated2d_backward")
def slow_conv_dilated2d_backward(grad_output, input, weight, kernel_size, stride, padding, dilation, output_mask):  # fmt: skip
    _check_kernel("slow_conv_dilated2d_backward", weight, kernel_size)
    return _conv_grads(grad_output, input, weight, stride, padding, dilation, 1, output_mask)


@implements("slow_conv_transpose2d_backward")
def slow_conv_transpose2d_backward(
    grad_output, input, weight, kernel_size, stride, padding, output_padding, dilation, output_mask
):
    _check_kernel("slow_conv_transpose2d_backward", weight, kernel_size)
    return _conv_grads(
        grad_output, input, weight, stride, padding, dilation, 1, output_mask, transposed=True,
        output_padding=output_padding,
    )  # fmt: skip


# ---- boxes
def _box_grads(forward, grad, bboxes, gtboxes, trans, is_cross, mode):
    found = _through(
        lambda a, b: forward(a, b, trans, is_cross, mode), [wide(bboxes), wide(gtboxes)], wide(grad)
    )
    return found[0].to(bboxes.dtype), found[1].to(gtboxes.dtype)


@implements("npu_giou_backward")
def npu_giou_backward(grad, bboxes, gtboxes, trans=False, is_cross=False, mode=0):
    return _box_grads(detection.npu_giou, grad, bboxes, gtboxes, trans, is_cross, mode)


@implements("npu_diou_backward")
def npu_diou_backward(grad, bboxes, gtboxes, trans=False, is_cross=False, mode=0):
    return _box_grads(detection.npu_diou, grad, bboxes, gtboxes, trans, is_cross, mode)


@implements("npu_ciou_backward")
def npu_ciou_backward(grad, bboxes, gtboxes, atan_sub, trans=False, is_cross=True, mode=0):
    def ciou(a, b, trans, is_cross, mode):
        return detection._ciou("npu_ciou_backward", a, b, trans, is_cross, mode)[0]

    return _box_grads(ciou, grad, bboxes, gtboxes, trans, is_cross, mode)


@implements("npu_roi_alignbk")
def npu_roi_alignbk(
    input, rois, xdiff_shape, pooled_width, pooled_height, spatial_scale, sample_num,
    roi_end_mode=None,
):  # fmt: skip
    """`input` is the gradient of the pooled regions"""

    def pooled(features):
        return detection.npu_roi_align(
            features, rois, spatial_scale, pooled_height, pooled_width, sample_num,
            1 if roi_end_mode is None else roi_end_mode,
        )  # fmt: skip

    return _through(pooled, [wide(input).new_zeros(xdiff_shape)], wide(input))[0].to(input.dtype)


# ---- softmax, dropout, spectra
@implements("npu_attn_softmax_backward_")
def npu_attn_softmax_backward_(input, grad_output, values):
    """Softmax in `values`; its gradient is written into `input`."""
    y, g = wide(values), wide(grad_output)
    return input.copy_(y * (g - (g * y).sum(-1, keepdim=True)))


@implements("fft_c2r_backward")
def fft_c2r_backward(grad, dim, normalization):
    """Of a transform to real numbers: the forward transform, its inner bins counted twice"""
    whole = torch.ops.aten._fft_r2c(grad, dim, normalization, True)
    bins, last = whole.size(dim[-1]), grad.size(dim[-1])
    twice = torch.arange(bins, device=grad.device)
    twice = torch.where((twice > 0) & (twice < last - bins + 1), 2.0, 1.0).to(grad.dtype)
    shape = [1] * whole.dim()
    shape[dim[-1]] = bins
    return whole * twice.reshape(shape)


@implements("fft_r2c_backward")
def fft_r2c_backward(grad, dim, normalization, onesided, last_dim_size):
    if onesided:
        pad = last_dim_size - grad.size(dim[-1])
        at = dim[-1] % grad.dim()
        zeros = grad.new_zeros([pad if d == at else n for d, n in enumerate(grad.shape)])
        grad = torch.cat((grad, zeros), at)
    return torch.ops.aten._fft_c2c(grad, dim, normalization, False).real


@implements("stft_backward")
def stft_backward(
    grad_output, input, n_fft, hop_length=None, win_length=None, window=None, normalized=False,
    onesided=None, return_complex=None,
):  # fmt: skip
    def spectrum(x):
        out = torch.stft(
            x, n_fft, hop_length, win_length, window, center=False, normalized=normalized,
            onesided=onesided, return_complex=True,
        )  # fmt: skip
        return out if grad_output.is_complex() else torch.view_as_real(out)

    return _through(spectrum, [input], grad_output)[0]
