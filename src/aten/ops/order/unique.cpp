// SPDX-License-Identifier: Apache-2.0
// Kind unique: how many first, then the values, where they went and how often.
#include "aten/ops/rows.h"

#include <ATen/WrapDimUtils.h>
#include <ATen/ops/_unique2_cpu_dispatch.h>
#include <ATen/ops/_unique_cpu_dispatch.h>
#include <ATen/ops/unique_consecutive_cpu_dispatch.h>
#include <ATen/ops/unique_dim_consecutive_cpu_dispatch.h>
#include <ATen/ops/unique_dim_cpu_dispatch.h>
#include <torch/library.h>

#include "aten/core/factories.h"
#include "driver/build_call.h"

namespace npu {
namespace {

using Three = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

struct Request {
  std::int64_t dim = -1;  // -1: elements, not slices
  bool sorted = true;
  bool consecutive = false;
  bool inverse = false;
  bool counts = false;
};

at::Tensor make_index(at::IntArrayRef sizes, c10::DeviceIndex device) {
  return make_empty(sizes, c10::ScalarType::Long, device);
}

// PyTorch's CPU brings the dim to the front, where the slices lie one after the
// other, and back.
at::Tensor make_slices(
    const at::Tensor& self, std::int64_t dim, std::int64_t n) {
  at::DimVector sizes(self.sizes());
  sizes.erase(sizes.begin() + dim);
  sizes.insert(sizes.begin(), n);
  return make_empty(sizes, self.scalar_type(), self.device().index())
      .movedim(0, dim);
}

npu_reason run_unique(
    NativeSite& site,
    const at::Tensor& self,
    const Request& request,
    Three& results) {
  const c10::DeviceIndex device = self.device().index();
  npu_unique_attrs attrs{};
  attrs.dim = request.dim;
  attrs.sorted = request.sorted ? 1 : 0;
  attrs.consecutive = request.consecutive ? 1 : 0;
  attrs.with_inverse = request.inverse ? 1 : 0;
  attrs.with_counts = request.counts ? 1 : 0;
  const at::Tensor total = make_index({}, device);
  const npu_tensor total_operand = to_operand(total);
  Call count = site.call();
  count.frame().flags |= NPU_CALL_COUNT;
  build::unique(
      count,
      &total_operand,
      nullptr,
      nullptr,
      nullptr,
      to_operand(self),
      attrs);
  Carry carry;
  const npu_reason why = site.run(count, device, {.carry = &carry});
  if (why != NPU_REASON_NONE) {
    return why;
  }
  const std::int64_t n = total.item<std::int64_t>();
  at::DimVector inverse_sizes{0};
  if (request.inverse && request.dim >= 0) {
    inverse_sizes = {self.size(request.dim)};
  } else if (request.inverse) {
    inverse_sizes.assign(self.sizes().begin(), self.sizes().end());
  }
  results = {
      request.dim >= 0 ? make_slices(self, request.dim, n)
                       : make_empty({n}, self.scalar_type(), device),
      make_index(inverse_sizes, device),
      make_index({request.counts ? n : 0}, device)};
  const auto& [values, inverse, counts] = results;
  const npu_tensor value_operand = to_operand(values);
  const MaybeOperand inverse_operand(request.inverse ? inverse : at::Tensor());
  const MaybeOperand count_operand(request.counts ? counts : at::Tensor());
  Call fill = site.call();
  build::unique(
      fill,
      nullptr,
      &value_operand,
      inverse_operand,
      count_operand,
      to_operand(self),
      attrs);
  return site.run(fill, device, {.carry = &carry});
}

Three unique2(const at::Tensor& self, bool sorted, bool inverse, bool counts) {
  static NativeSite site("aten::_unique2", NPU_KIND_UNIQUE, 0);
  npu_reason why = site.wants(self);
  if (why == NPU_REASON_NONE) {
    Three results;
    why = run_unique(
        site,
        self,
        {.sorted = sorted, .inverse = inverse, .counts = counts},
        results);
    if (why == NPU_REASON_NONE) {
      return results;
    }
  }
  return site.cpu(why, &at::cpu::_unique2, self, sorted, inverse, counts);
}

std::tuple<at::Tensor, at::Tensor> unique1(
    const at::Tensor& self, bool sorted, bool inverse) {
  static NativeSite site("aten::_unique", NPU_KIND_UNIQUE, 0);
  npu_reason why = site.wants(self);
  if (why == NPU_REASON_NONE) {
    Three results;
    why =
        run_unique(site, self, {.sorted = sorted, .inverse = inverse}, results);
    if (why == NPU_REASON_NONE) {
      return {std::get<0>(results), std::get<1>(results)};
    }
  }
  return site.cpu(why, &at::cpu::_unique, self, sorted, inverse);
}

Three unique_dim(
    const at::Tensor& self,
    std::int64_t dim,
    bool sorted,
    bool inverse,
    bool counts) {
  static NativeSite site("aten::unique_dim", NPU_KIND_UNIQUE, 0);
  npu_reason why =
      self.dim() == 0 ? npu_reason{NPU_REASON_NDIM} : site.wants(self);
  if (why == NPU_REASON_NONE) {
    Three results;
    why = run_unique(
        site,
        self,
        {.dim = at::maybe_wrap_dim(dim, self.dim()),
         .sorted = sorted,
         .inverse = inverse,
         .counts = counts},
        results);
    if (why == NPU_REASON_NONE) {
      return results;
    }
  }
  return site.cpu(
      why, &at::cpu::unique_dim, self, dim, sorted, inverse, counts);
}

Three unique_consecutive(
    const at::Tensor& self,
    bool inverse,
    bool counts,
    std::optional<std::int64_t> dim) {
  static NativeSite site("aten::unique_consecutive", NPU_KIND_UNIQUE, 0);
  const bool odd = dim && self.dim() == 0;
  npu_reason why = odd ? npu_reason{NPU_REASON_NDIM} : site.wants(self);
  if (why == NPU_REASON_NONE) {
    Three results;
    why = run_unique(
        site,
        self,
        {.dim = dim ? at::maybe_wrap_dim(*dim, self.dim()) : -1,
         .consecutive = true,
         .inverse = inverse,
         .counts = counts},
        results);
    if (why == NPU_REASON_NONE) {
      return results;
    }
  }
  return site.cpu(
      why, &at::cpu::unique_consecutive, self, inverse, counts, dim);
}

Three unique_dim_consecutive(
    const at::Tensor& self, std::int64_t dim, bool inverse, bool counts) {
  static NativeSite site("aten::unique_dim_consecutive", NPU_KIND_UNIQUE, 0);
  npu_reason why =
      self.dim() == 0 ? npu_reason{NPU_REASON_NDIM} : site.wants(self);
  if (why == NPU_REASON_NONE) {
    Three results;
    why = run_unique(
        site,
        self,
        {.dim = at::maybe_wrap_dim(dim, self.dim()),
         .consecutive = true,
         .inverse = inverse,
         .counts = counts},
        results);
    if (why == NPU_REASON_NONE) {
      return results;
    }
  }
  return site.cpu(
      why, &at::cpu::unique_dim_consecutive, self, dim, inverse, counts);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_unique", TORCH_FN(unique1));
  m.impl("_unique2", TORCH_FN(unique2));
  m.impl("unique_consecutive", TORCH_FN(unique_consecutive));
  m.impl("unique_dim", TORCH_FN(unique_dim));
  m.impl("unique_dim_consecutive", TORCH_FN(unique_dim_consecutive));
}

}  // namespace npu
