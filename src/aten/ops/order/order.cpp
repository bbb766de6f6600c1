// SPDX-License-Identifier: Apache-2.0
// Kinds sort, topk and isin: operators with a structured meta.
#include "aten/ops/rows.h"

#include "aten/ops/op.h"
#include "attempts/order.h"
#include "driver/build_call.h"

namespace npu::ops {

npu_reason sort_out(
    NativeSite& site,
    const at::Tensor& self,
    std::optional<bool> stable,
    std::int64_t dim,
    bool descending,
    const at::Tensor& values,
    const at::Tensor& indices) {
  if (overlaps(values, self) || overlaps(indices, self)) {
    return NPU_REASON_ALIAS;
  }
  npu_sort_attrs attrs{
      .dim = self.dim() == 0 ? -1 : at::maybe_wrap_dim(dim, self.dim()),
      .stable = stable.value_or(false),
      .descending = descending};
  const npu_tensor value_operand = to_operand(values);
  const npu_tensor index_operand = to_operand(indices);
  return run<build::sort>(site, &value_operand, &index_operand, self, attrs);
}

npu_reason topk_out(
    NativeSite& site,
    const at::Tensor& self,
    std::int64_t k,
    std::int64_t dim,
    bool largest,
    bool sorted,
    const at::Tensor& values,
    const at::Tensor& indices) {
  if (overlaps(values, self) || overlaps(indices, self) ||
      values.numel() == 0) {
    return NPU_REASON_SIZE;
  }
  npu_topk_attrs attrs{
      .k = k,
      .dim = self.dim() == 0 ? -1 : at::maybe_wrap_dim(dim, self.dim()),
      .largest = largest,
      .sorted = sorted};
  const npu_tensor index_operand = to_operand(indices);
  return run<build::topk>(site, values, &index_operand, self, attrs);
}

npu_reason isin_out(
    NativeSite& site,
    const at::Tensor& elements,
    const at::Tensor& test_elements,
    bool assume_unique,
    bool invert,
    const at::Tensor& out) {
  if (elements.numel() == 0 || test_elements.numel() == 0 ||
      overlaps(out, elements) || overlaps(out, test_elements) ||
      test_elements.device() != elements.device()) {
    return NPU_REASON_SIZE;
  }
  npu_isin_attrs attrs{.assume_unique = assume_unique, .invert = invert};
  Call call = site.call();
  build::isin(
      call,
      to_operand(out),
      to_operand(elements),
      to_operand(test_elements),
      attrs);
  call.frame().compute_dtype = to_npu_dtype(
      c10::promoteTypes(elements.scalar_type(), test_elements.scalar_type()));
  return site.run(call, elements.device().index());
}

}  // namespace npu::ops
