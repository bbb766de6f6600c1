// SPDX-License-Identifier: Apache-2.0
// nonzero, masked_select, masked_scatter, repeat_interleave: results whose size
// is known only after a look at the data.
#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/ops/nonzero_static_cpu_dispatch.h>

#include <algorithm>

#include "aten/ops/counted.h"
#include "aten/ops/index/overlap.h"
#include "attempts/index.h"
#include "driver/build_call.h"

namespace npu::ops {

// ---- nonzero ----

npu_reason nonzero(NativeSite& site, Outputs& out, const at::Tensor& self) {
  const at::Tensor& given = out.at(0);
  if (const npu_reason why = first_failed(
          {{!given.defined() || given.scalar_type() == at::kLong,
            NPU_REASON_DTYPE},
           {self.dim() != 0 &&
                (!given.defined() || given.device() == self.device()),
            kLeaveToCpu}})) {
    return why;
  }
  npu_nonzero_attrs attrs{};
  const auto build =
      [&](Call& call, const at::Tensor& total, const at::Tensor& rows) {
        fill<build::nonzero>(call, total, rows, self, attrs);
      };
  Counted counted(site, self);
  if (const npu_reason why = counted.count(build)) {
    return why;
  }
  check_overlap(given, self);
  const std::int64_t total = counted.total();
  // One column after the other, as CPU lays it out.
  out.set(
      0,
      {total, self.dim()},
      {1, std::max<std::int64_t>(total, 1)},
      self.options().dtype(at::kLong),
      false);
  const at::Tensor& result = out.at(0);
  return counted.fill(build, result);
}

npu_reason nonzero_static(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& self,
    std::int64_t size,
    std::int64_t fill_value) {
  const at::Tensor& given = out.at(0);
  if (const npu_reason why = first_failed(
          {{!given.defined() || given.scalar_type() == at::kLong,
            NPU_REASON_DTYPE},
           {size > 0, NPU_REASON_SIZE},
           {self.dim() != 0, kLeaveToCpu}})) {
    return why;
  }
  // One column after the other, as accelerators and fake tensors have it.
  out.set(
      0, {size, self.dim()}, {1, size}, self.options().dtype(at::kLong), false);
  npu_nonzero_attrs attrs{.fill_value = fill_value};
  return run<build::nonzero>(site, nullptr, out.at(0), self, attrs);
}

at::Tensor nonzero_static_on_cpu(
    NativeSite& site,
    npu_reason why,
    const at::Tensor& self,
    std::int64_t size,
    std::int64_t fill_value) {
  return site.cpu(why, &at::cpu::nonzero_static, self, size, fill_value)
      .t()
      .contiguous()
      .t();
}

// ---- masked_select, masked_scatter ----

npu_reason masked_select(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& self,
    const at::Tensor& mask) {
  const at::Tensor& given = out.at(0);
  if (const npu_reason why = first_failed(
          {{mask.scalar_type() == at::kBool &&
                (!given.defined() || same_dtype(given, self)),
            NPU_REASON_DTYPE},
           {on_device(mask, self), kLeaveToCpu}})) {
    return why;
  }
  const auto [wide_mask, wide_self] = at::expand_outplace(mask, self);
  if (wide_self->numel() == 0) {
    return NPU_REASON_SIZE;
  }
  const auto build =
      [&](Call& call, const at::Tensor& total, const at::Tensor& values) {
        fill<build::masked_select>(call, total, values, *wide_self, *wide_mask);
      };
  Counted counted(site, self);
  if (const npu_reason why = counted.count(build)) {
    return why;
  }
  check_overlap(given, self, mask);
  const at::Tensor& result = set_output(out, 0, {counted.total()}, self);
  return counted.fill(build, result);
}

npu_reason masked_scatter(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& self,
    const at::Tensor& mask,
    const at::Tensor& source) {
  if (const npu_reason why = first_failed(
          {{at::has_internal_overlap(self) != at::MemOverlap::Yes,
            NPU_REASON_ALIAS},
           {at::is_expandable_to(mask.sizes(), self.sizes()), kLeaveToCpu}})) {
    return why;
  }
  const at::Tensor wide_mask = mask.expand(self.sizes());
  return run_checked<build::masked_scatter>(site, out.at(0), wide_mask, source);
}

// ---- repeat_interleave ----

npu_reason repeat_interleave(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& repeats,
    std::optional<std::int64_t> output_size) {
  const auto build =
      [&](Call& call, const at::Tensor& total, const at::Tensor& indices) {
        fill<build::repeat_interleave>(call, total, indices, repeats);
      };
  Counted counted(site, repeats);
  if (!output_size) {
    if (const npu_reason why = counted.count(build)) {
      return why;
    }
    output_size = counted.total();
  }
  const at::Tensor& result = set_output(out, 0, {*output_size}, repeats);
  return counted.fill(build, result);
}

}  // namespace npu::ops
