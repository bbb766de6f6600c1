// SPDX-License-Identifier: Apache-2.0
// Kinds sort, topk and isin (structured), and bincount.
#include "aten/ops/rows.h"

#include <ATen/ops/bincount_cpu_dispatch.h>
#include <torch/library.h>

#include "aten/core/factories.h"
#include "aten/ops/operands.h"
#include "attempts/order.h"
#include "driver/build_call.h"

namespace npu {
namespace {

// ---- counts ----

// First how many bins, then what is in them.
at::Tensor bincount(
    const at::Tensor& self,
    const std::optional<at::Tensor>& weights,
    std::int64_t minlength) {
  static NativeSite site("aten::bincount", NPU_KIND_BINCOUNT, 0);
  const at::Tensor& weight = or_undefined(weights);
  const bool plain =
      self.dim() == 1 && minlength >= 0 &&
      c10::isIntegralType(self.scalar_type(), /*includeBool=*/false) &&
      (!weight.defined() || weight.sizes() == self.sizes());
  npu_reason why =
      plain ? site.wants(self, weight) : npu_reason{NPU_REASON_ATTRIBUTE};
  if (why == NPU_REASON_NONE) {
    const c10::DeviceIndex device = self.device().index();
    npu_bincount_attrs attrs{};
    attrs.minlength = minlength;
    const MaybeOperand weight_operand(weight);
    at::Tensor total = make_empty({}, c10::ScalarType::Long, device);
    const npu_tensor total_operand = to_operand(total);
    Call count = site.call();
    count.frame().flags |= NPU_CALL_COUNT;
    build::bincount(
        count,
        &total_operand,
        nullptr,
        to_operand(self),
        weight_operand,
        attrs);
    Carry carry;
    why = site.run(count, device, {.carry = &carry});
    if (why == NPU_REASON_NONE) {
      const c10::ScalarType dtype =
          !weight.defined() ? c10::ScalarType::Long
          : weight.scalar_type() == c10::ScalarType::Float
              ? c10::ScalarType::Float
              : c10::ScalarType::Double;
      at::Tensor out = make_empty({total.item<std::int64_t>()}, dtype, device);
      const npu_tensor out_operand = to_operand(out);
      Call fill = site.call();
      build::bincount(
          fill, nullptr, &out_operand, to_operand(self), weight_operand, attrs);
      why = site.run(fill, device, {.carry = &carry});
      if (why == NPU_REASON_NONE) {
        return out;
      }
    }
  }
  return site.cpu(why, &at::cpu::bincount, self, weights, minlength);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("bincount", TORCH_FN(bincount));
}

}  // namespace npu

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
  npu_sort_attrs attrs{};
  attrs.dim = self.dim() == 0 ? -1 : at::maybe_wrap_dim(dim, self.dim());
  attrs.stable = stable.value_or(false) ? 1 : 0;
  attrs.descending = descending ? 1 : 0;
  const npu_tensor value_operand = to_operand(values);
  const npu_tensor index_operand = to_operand(indices);
  Call call = site.call();
  build::sort(call, &value_operand, &index_operand, to_operand(self), attrs);
  return site.run(call, self.device().index());
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
  npu_topk_attrs attrs{};
  attrs.dim = self.dim() == 0 ? -1 : at::maybe_wrap_dim(dim, self.dim());
  attrs.k = k;
  attrs.largest = largest ? 1 : 0;
  attrs.sorted = sorted ? 1 : 0;
  const npu_tensor index_operand = to_operand(indices);
  Call call = site.call();
  build::topk(
      call, to_operand(values), &index_operand, to_operand(self), attrs);
  return site.run(call, self.device().index());
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
  npu_isin_attrs attrs{};
  attrs.assume_unique = assume_unique ? 1 : 0;
  attrs.invert = invert ? 1 : 0;
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
