// SPDX-License-Identifier: Apache-2.0
// where: an elementwise operator whose first operand is a mask.
#include <torch/library.h>

#include "aten/ops/map/map.h"
#include "npu/kinds.h"

#include <ATen/ops/result_type.h>
#include <ATen/ops/where_cpu_dispatch.h>

namespace npu {
namespace {

// A mask on the host, or one of bytes (PyTorch warns), is the CPU rung's.
npu_reason wants_where(
    const NativeSite& site,
    const at::Tensor& condition,
    const at::Tensor& self,
    const at::Tensor& other) {
  if (condition.device().is_cpu() || condition.scalar_type() != c10::kBool) {
    return NPU_REASON_DTYPE;
  }
  // The values decide what a driver prefers, not the mask.
  return self.device().is_cpu() ? site.wants_all({&other, &self, &condition})
                                : site.wants_all({&self, &other, &condition});
}

at::TensorIterator where_iterator(
    const at::Tensor& out,
    const at::Tensor& condition,
    const at::Tensor& self,
    const at::Tensor& other) {
  at::TensorIteratorConfig config;
  config.check_all_same_dtype(false)
      .allow_cpu_scalars(true)
      .add_output(out)
      .add_const_input(condition)
      .add_const_input(self)
      .add_const_input(other);
  if (!out.defined()) {
    config.declare_static_dtype(at::result_type(self, other));
  }
  return config.build();
}

npu_reason run_where(
    NativeSite& site,
    at::Tensor& out,
    const at::Tensor& condition,
    const at::Tensor& self,
    const at::Tensor& other) {
  npu_reason why = wants_where(site, condition, self, other);
  if (why != NPU_REASON_NONE) {
    return why;
  }
  npu_ternary_attrs attrs{};
  at::TensorIterator iter = where_iterator(out, condition, self, other);
  why = run_map(site, iter, {&condition, &self, &other}, as_attrs(attrs));
  if (why == NPU_REASON_NONE) {
    out = iter.output(0);
  }
  return why;
}

at::Tensor where(
    const at::Tensor& condition,
    const at::Tensor& self,
    const at::Tensor& other) {
  static NativeSite site(
      "aten::where.self", NPU_KIND_TERNARY, NPU_TERNARY_WHERE);
  at::Tensor out;
  const npu_reason why = run_where(site, out, condition, self, other);
  return why == NPU_REASON_NONE
             ? out
             : site.cpu(why, &at::cpu::where, condition, self, other);
}

at::Tensor& where_out(
    const at::Tensor& condition,
    const at::Tensor& self,
    const at::Tensor& other,
    at::Tensor& out) {
  static NativeSite site(
      "aten::where.self_out", NPU_KIND_TERNARY, NPU_TERNARY_WHERE);
  npu_reason why = NPU_REASON_DTYPE;
  // A result of another dtype is an error, which the CPU rung has.
  if (out.device() == condition.device() &&
      out.scalar_type() == at::result_type(self, other)) {
    at::Tensor into = out;
    why = run_where(site, into, condition, self, other);
  }
  if (why != NPU_REASON_NONE) {
    site.cpu(why, &at::cpu::where_outf, condition, self, other, out);
  }
  return out;
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("where.self", TORCH_FN(where));
  m.impl("where.self_out", TORCH_FN(where_out));
}

}  // namespace npu
