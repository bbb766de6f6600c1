// SPDX-License-Identifier: Apache-2.0
// Kinds weight_norm and weight_norm_grad, and the family's table.
//
// Reference kernels: right in every case, not fast. The host device runs
// PyTorch's CPU kernels instead, unless NPU_HOST_KERNELS=all.
#include <cmath>

#include "kernels/normalise.h"

namespace npu::host {
namespace {

npu_status weight_norm_run(const npu_call& call) {
  const npu_weight_norm_args args = npu_weight_norm_unpack(&call);
  return with_float(args.out->dtype, [&](auto type) -> npu_status {
    using T = decltype(type);
    const Loaded<T> v(args.v);
    const Loaded<T> g(args.g);
    const Stored<T> out(args.out);
    const Stored<T> norms(args.norms);
    const Slices slices(*args.v, args.attrs.dim);
    const npu_status status = slices.for_each([&](std::int64_t s) {
      double squares = 0;
      slices.each(s, [&](std::int64_t i) {
        squares += static_cast<double>(v[i]) * v[i];
      });
      const double norm = std::sqrt(squares);
      const double scale = g[s] / norm;
      slices.each(s, [&](std::int64_t i) { out.set(i, v[i] * scale); });
      norms.set(s, norm);
    });
    return finish(status, v, g, out, norms);
  });
}

// With dot = sum(grad * v) of the slice: grad_g = dot / norm,
// grad_v = g / norm * (grad - v * dot / norm^2).
npu_status weight_norm_grad_run(const npu_call& call) {
  const npu_weight_norm_grad_args args = npu_weight_norm_grad_unpack(&call);
  return with_float(args.grad_v->dtype, [&](auto type) -> npu_status {
    using T = decltype(type);
    const Loaded<T> grad(args.grad_out);
    const Loaded<T> v(args.v);
    const Loaded<T> g(args.g);
    const Loaded<T> norms(args.norms);
    const Stored<T> grad_v(args.grad_v);
    const Stored<T> grad_g(args.grad_g);
    const Slices slices(*args.v, args.attrs.dim);
    const npu_status status = slices.for_each([&](std::int64_t s) {
      double dot = 0;
      slices.each(s, [&](std::int64_t i) {
        dot += static_cast<double>(grad[i]) * v[i];
      });
      const double norm = norms[s];
      const double scale = g[s] / norm;
      const double along = dot / (norm * norm);
      slices.each(s, [&](std::int64_t i) {
        grad_v.set(i, scale * (grad[i] - v[i] * along));
      });
      grad_g.set(s, dot / norm);
    });
    return finish(status, grad, v, g, norms, grad_v, grad_g);
  });
}

// Kinds without codes, on floats alone.
npu_status no_code_caps(std::uint32_t code, npu_op_caps& out) {
  if (code != 0) {
    return NPU_E_UNSUPPORTED;
  }
  float_caps(out, NPU_MAX_OPERANDS);
  return NPU_OK;
}

npu_status layer_norm_caps(std::uint32_t code, npu_op_caps& out) {
  const npu_status status = no_code_caps(code, out);
  out.flags |= NPU_CAP_WIDE_STATISTICS;
  return status;
}

// Batch norm's steps: two codes each, or one; counts may be of any dtype.
npu_status batch_caps(std::uint32_t code, npu_op_caps& out) {
  if (code > 1) {
    return NPU_E_UNSUPPORTED;
  }
  float_caps(out, NPU_MAX_OPERANDS);
  out.dtypes[8] |= kIndexDtypes;  // counts: the last input of both kinds
  return NPU_OK;
}

npu_status apply_caps(std::uint32_t code, npu_op_caps& out) {
  const npu_status status = batch_caps(code, out);
  out.flags |= NPU_CAP_ALIAS;
  out.alias_mask = 1;
  return status;
}

constexpr KernelRow kRows[] = {
    {NPU_KIND_SOFTMAX, softmax_caps, nullptr, softmax_run},
    {NPU_KIND_SOFTMAX_GRAD, softmax_caps, nullptr, softmax_grad_run},
    {NPU_KIND_LAYER_NORM, layer_norm_caps, nullptr, layer_norm_run},
    {NPU_KIND_LAYER_NORM_GRAD, layer_norm_caps, nullptr, layer_norm_grad_run},
    {NPU_KIND_RMS_NORM, no_code_caps, nullptr, rms_norm_run},
    {NPU_KIND_RMS_NORM_GRAD, no_code_caps, nullptr, rms_norm_grad_run},
    {NPU_KIND_GROUP_NORM, no_code_caps, nullptr, group_norm_run},
    {NPU_KIND_GROUP_NORM_GRAD, no_code_caps, nullptr, group_norm_grad_run},
    {NPU_KIND_BATCH_NORM_STATS, batch_caps, nullptr, batch_norm_stats_run},
    {NPU_KIND_BATCH_NORM_APPLY, apply_caps, nullptr, batch_norm_apply_run},
    {NPU_KIND_BATCH_NORM_GRAD_REDUCE,
     no_code_caps,
     nullptr,
     batch_norm_grad_reduce_run},
    {NPU_KIND_BATCH_NORM_GRAD_APPLY,
     batch_caps,
     nullptr,
     batch_norm_grad_apply_run},
    {NPU_KIND_BATCH_NORM, batch_caps, nullptr, batch_norm_run},
    {NPU_KIND_BATCH_NORM_GRAD, batch_caps, nullptr, batch_norm_grad_run},
    {NPU_KIND_WEIGHT_NORM, no_code_caps, nullptr, weight_norm_run},
    {NPU_KIND_WEIGHT_NORM_GRAD, no_code_caps, nullptr, weight_norm_grad_run},
};

}  // namespace

const std::span<const KernelRow> kNormaliseKernels = kRows;

}  // namespace npu::host
