// SPDX-License-Identifier: Apache-2.0
// Batch norm in pieces, as SyncBatchNorm needs them: each process computes its
// statistics, they are gathered, then applied. CPU has no such kernels: what
// the driver's kinds decline is made of other operators.
#include <ATen/OpMathType.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/var_mean.h>
#include <torch/library.h>

#include <tuple>
#include <vector>

#include "aten/core/copy.h"
#include "aten/ops/norm/batch_norm.h"
#include "aten/ops/out_form.h"
#include "driver/build_call.h"

namespace npu {
namespace {

using Pair = std::tuple<at::Tensor, at::Tensor>;

// Statistics are kept in float32 for half precision inputs.
c10::ScalarType stats_type(const at::Tensor& input) {
  return at::toOpMathType(input.scalar_type());
}

// Every dimension but the channel's.
std::vector<std::int64_t> all_but_channel(const at::Tensor& input) {
  TORCH_CHECK(
      input.dim() >= 2,
      "npu: batch norm: expected an input of at least 2 "
      "dimensions, got ",
      input.dim(),
      ".");
  std::vector<std::int64_t> dims = {0};
  for (std::int64_t d = 2; d < input.dim(); ++d) {
    dims.push_back(d);
  }
  return dims;
}

// A vector of one value per channel, shaped to go with `input`.
at::Tensor per_channel(const at::Tensor& vector, const at::Tensor& input) {
  std::vector<std::int64_t> sizes(input.dim(), 1);
  sizes[1] = -1;
  return vector.to(stats_type(input)).reshape(sizes);
}

at::Tensor empty_image(const at::Tensor& input) {
  return make_empty(
      input.sizes(),
      input.scalar_type(),
      input.device().index(),
      input.suggest_memory_format());
}

at::Tensor widened(const at::Tensor& input) {
  return input.to(stats_type(input));
}

// One value per channel of a type that kernels compute with.
bool is_vector(const at::Tensor& tensor, const at::Tensor& input) {
  return !tensor.defined() || (is_float(tensor) && tensor.dim() == 1 &&
                               tensor.numel() == input.size(1));
}

Pair stats(const at::Tensor& input, double eps) {
  check_same_device("aten::batch_norm_stats", {&input});
  static NativeSite site(
      "aten::batch_norm_stats",
      NPU_KIND_BATCH_NORM_STATS,
      NPU_BATCH_NORM_STATS_BATCH);
  if (site.wants(input) == NPU_REASON_NONE && is_channel_batch(input)) {
    at::Tensor mean = channel_vector(input, stats_type(input));
    at::Tensor rstd = channel_vector(input, stats_type(input));
    if (run_stats(site, input, mean, rstd, {}, {}, {}, 0, eps) ==
        NPU_REASON_NONE) {
      return {mean, rstd};
    }
  }
  auto [var, mean] =
      at::var_mean(widened(input), all_but_channel(input), /*correction=*/0);
  return {mean, at::rsqrt(var.add_(eps))};
}

void update_running(
    const at::Tensor& running, const at::Tensor& value, double momentum) {
  if (running.defined()) {
    copy(
        running,
        running.mul(1 - momentum).add_(value.to(running.dtype()), momentum),
        false);
  }
}

// Statistics of several parts (rows) of counts[i] elements become those of all.
Pair gather_stats_with_counts(
    const at::Tensor& input,
    const at::Tensor& mean,
    const at::Tensor& invstd,
    const OptTensor& running_mean,
    const OptTensor& running_var,
    double momentum,
    double eps,
    const at::Tensor& counts) {
  const at::Tensor& rm = or_undefined(running_mean);
  const at::Tensor& rv = or_undefined(running_var);
  check_same_device(
      "aten::batch_norm_gather_stats_with_counts",
      {&input, &mean, &invstd, &rm, &rv, &counts});
  static NativeSite site(
      "aten::batch_norm_gather_stats_with_counts",
      NPU_KIND_BATCH_NORM_STATS,
      NPU_BATCH_NORM_STATS_GATHER);
  if (site.wants(mean, invstd, rm, rv) == NPU_REASON_NONE && is_float(mean) &&
      mean.dim() == 2 && mean.sizes() == invstd.sizes() &&
      mean.scalar_type() == invstd.scalar_type() &&
      counts.numel() == mean.size(0) &&
      is_parameter(rm, mean, mean.sizes().slice(1)) &&
      is_parameter(rv, mean, mean.sizes().slice(1))) {
    at::Tensor mean_all = channel_vector(mean, mean.scalar_type());
    at::Tensor rstd_all = channel_vector(mean, mean.scalar_type());
    npu_batch_norm_stats_attrs attrs{.eps = eps, .momentum = momentum};
    if (run<build::batch_norm_stats>(
            site,
            mean_all,
            rstd_all,
            nullptr,
            rm,
            rv,
            nullptr,
            mean,
            invstd,
            counts.to(mean.scalar_type()),
            attrs) == NPU_REASON_NONE) {
      return {mean_all, rstd_all};
    }
  }
  const at::Tensor weights = counts.to(mean.dtype()).reshape({-1, 1});
  const at::Tensor total = weights.sum(0);
  const at::Tensor mean_all = mean.mul(weights).sum(0).div_(total);
  const at::Tensor var = invstd.pow(-2).sub_(eps);
  const at::Tensor squares =
      mean.sub(mean_all).square_().add_(var).mul_(weights).sum(0);
  update_running(rm, mean_all, momentum);
  update_running(rv, squares.div(total.sub(1)), momentum);
  return {mean_all, at::rsqrt(squares.div(total).add_(eps))};
}

Pair gather_stats(
    const at::Tensor& input,
    const at::Tensor& mean,
    const at::Tensor& invstd,
    const OptTensor& running_mean,
    const OptTensor& running_var,
    double momentum,
    double eps,
    std::int64_t count) {
  const at::Tensor counts =
      mean.new_full({mean.size(0)}, static_cast<double>(count));
  return gather_stats_with_counts(
      input, mean, invstd, running_mean, running_var, momentum, eps, counts);
}

at::Tensor elemt(
    const at::Tensor& input,
    const OptTensor& weight,
    const OptTensor& bias,
    const at::Tensor& mean,
    const at::Tensor& invstd,
    double) {
  const at::Tensor& w = or_undefined(weight);
  const at::Tensor& b = or_undefined(bias);
  check_same_device("aten::batch_norm_elemt", {&input, &w, &b, &mean, &invstd});
  static NativeSite site(
      "aten::batch_norm_elemt",
      NPU_KIND_BATCH_NORM_APPLY,
      NPU_BATCH_NORM_APPLY_RSTD);
  if (site.wants(input, w, b, mean, invstd) == NPU_REASON_NONE &&
      is_channel_batch(input) && is_vector(w, input) && is_vector(b, input) &&
      is_vector(mean, input) && is_vector(invstd, input)) {
    at::Tensor made = empty_image(input);
    npu_batch_norm_apply_attrs attrs{};
    if (run<build::batch_norm_apply>(
            site, made, input, mean, invstd, w, b, attrs) == NPU_REASON_NONE) {
      return made;
    }
  }
  at::Tensor out = widened(input)
                       .sub(per_channel(mean, input))
                       .mul_(per_channel(invstd, input));
  if (w.defined()) {
    out.mul_(per_channel(w, input));
  }
  if (b.defined()) {
    out.add_(per_channel(b, input));
  }
  return out.to(input.scalar_type());
}

// sum dy, sum dy * (x - mean), and from them the weight's and bias's gradient.
std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> backward_reduce(
    const at::Tensor& grad,
    const at::Tensor& input,
    const at::Tensor& mean,
    const at::Tensor& invstd,
    const OptTensor& weight,
    bool want_input,
    bool want_weight,
    bool want_bias) {
  const at::Tensor& w = or_undefined(weight);
  check_same_device(
      "aten::batch_norm_backward_reduce", {&grad, &input, &mean, &invstd, &w});
  const c10::ScalarType dtype =
      w.defined() ? w.scalar_type() : input.scalar_type();
  static NativeSite site(
      "aten::batch_norm_backward_reduce", NPU_KIND_BATCH_NORM_GRAD_REDUCE, 0);
  if (site.wants(input, grad, mean, invstd) == NPU_REASON_NONE &&
      is_channel_batch(input) && is_same_batch(grad, input) &&
      is_vector(mean, input) && is_vector(invstd, input)) {
    const c10::ScalarType wide = stats_type(input);
    at::Tensor sum = channel_vector(input, wide, want_input);
    at::Tensor sum_in = channel_vector(input, wide, want_input);
    at::Tensor dweight = channel_vector(input, dtype, want_weight);
    at::Tensor dbias = channel_vector(input, dtype, want_bias);
    if (run<build::batch_norm_grad_reduce>(
            site, sum, sum_in, dweight, dbias, grad, input, mean, invstd) ==
        NPU_REASON_NONE) {
      return {sum, sum_in, dweight, dbias};
    }
  }
  const auto dims = all_but_channel(input);
  const at::Tensor dy = widened(grad);
  const at::Tensor sum_dy = dy.sum(dims);
  const at::Tensor sum_dy_xmu =
      widened(input).sub(per_channel(mean, input)).mul_(dy).sum(dims);
  return {
      want_input ? sum_dy : at::Tensor(),
      want_input ? sum_dy_xmu : at::Tensor(),
      want_weight ? sum_dy_xmu.mul(invstd).to(dtype) : at::Tensor(),
      want_bias ? sum_dy.to(dtype) : at::Tensor()};
}

at::Tensor backward_elemt(
    const at::Tensor& grad,
    const at::Tensor& input,
    const at::Tensor& mean,
    const at::Tensor& invstd,
    const OptTensor& weight,
    const at::Tensor& sum_dy,
    const at::Tensor& sum_dy_xmu,
    const at::Tensor& counts) {
  const at::Tensor& w = or_undefined(weight);
  check_same_device(
      "aten::batch_norm_backward_elemt",
      {&grad, &input, &mean, &invstd, &w, &sum_dy, &sum_dy_xmu, &counts});
  static NativeSite site(
      "aten::batch_norm_backward_elemt",
      NPU_KIND_BATCH_NORM_GRAD_APPLY,
      NPU_BATCH_NORM_GRAD_APPLY_TRAIN);
  if (site.wants(input, grad, mean, invstd, w) == NPU_REASON_NONE &&
      is_channel_batch(input) && is_same_batch(grad, input) &&
      is_vector(mean, input) && is_vector(invstd, input) &&
      is_vector(w, input) && is_vector(sum_dy, input) &&
      is_vector(sum_dy_xmu, input)) {
    at::Tensor made = empty_image(input);
    if (run<build::batch_norm_grad_apply>(
            site,
            made,
            grad,
            input,
            mean,
            invstd,
            w,
            sum_dy,
            sum_dy_xmu,
            counts.to(stats_type(input))) == NPU_REASON_NONE) {
      return made;
    }
  }
  const at::Tensor total = counts.sum().to(stats_type(input));
  const at::Tensor slope = sum_dy_xmu.div(total).mul_(invstd).mul_(invstd);
  at::Tensor out = widened(grad)
                       .sub(per_channel(sum_dy.div(total), input))
                       .sub_(widened(input)
                                 .sub(per_channel(mean, input))
                                 .mul_(per_channel(slope, input)))
                       .mul_(per_channel(invstd, input));
  if (w.defined()) {
    out.mul_(per_channel(w, input));
  }
  return out.to(input.scalar_type());
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("batch_norm_stats", TORCH_FN(stats));
  m.impl("batch_norm_gather_stats", TORCH_FN(gather_stats));
  m.impl(
      "batch_norm_gather_stats_with_counts",
      TORCH_FN(gather_stats_with_counts));
  m.impl("batch_norm_elemt", TORCH_FN(elemt));
  m.impl("batch_norm_elemt.out", out_form<&elemt>);
  m.impl("batch_norm_backward_reduce", TORCH_FN(backward_reduce));
  m.impl("batch_norm_backward_elemt", TORCH_FN(backward_elemt));
}

}  // namespace npu
