// SPDX-License-Identifier: Apache-2.0
// nonzero, masked_select, masked_scatter, repeat_interleave: results whose size
// is known only after a look at the data.
#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>

#include <algorithm>

#include "aten/core/factories.h"
#include "aten/ops/op.h"
#include "attempts/index.h"
#include "driver/build_call.h"

namespace npu::ops {

namespace {

// Two calls: the first counts into device memory, the second fills what was
// made for that many. What the driver wants to keep between them is kept here.
class Counted {
 public:
  Counted(NativeSite& site, const at::Tensor& on)
      : site_(site), on_(on), total_(make_empty({}, at::kLong, index())) {}

  // build(call, total, nullptr) fills the frame of the first call.
  template <class Build>
  npu_reason count(Build build) {
    Call call = site_.call();
    call.frame().flags |= NPU_CALL_COUNT;
    const npu_tensor total = to_operand(total_);
    build(call, &total, nullptr);
    return run_checked(site_, call, on_, IndexError::kCpus, &carry_);
  }
  std::int64_t total() const {
    return total_.item<std::int64_t>();
  }
  // build(call, nullptr, out) fills that of the second.
  template <class Build>
  npu_reason fill(Build build, const at::Tensor& out) {
    Call call = site_.call();
    const npu_tensor operand = to_operand(out);
    build(call, nullptr, &operand);
    return run_checked(site_, call, on_, IndexError::kCpus, &carry_);
  }

 private:
  c10::DeviceIndex index() const {
    return on_.device().index();
  }

  NativeSite& site_;
  const at::Tensor& on_;
  at::Tensor total_;
  Carry carry_;
};

}  // namespace

// ---- nonzero ----

npu_reason nonzero(NativeSite& site, Outputs& out, const at::Tensor& self) {
  const at::Tensor& given = out.at(0);
  if (self.dim() == 0 ||
      (given.defined() &&
       (given.scalar_type() != at::kLong || given.device() != self.device()))) {
    return kLeaveToCpu;
  }
  npu_nonzero_attrs attrs{};
  const npu_tensor in = to_operand(self);
  const auto build =
      [&](Call& call, const npu_tensor* total, const npu_tensor* rows) {
        build::nonzero(call, total, rows, in, attrs);
      };
  Counted counted(site, self);
  if (const npu_reason why = counted.count(build); why != NPU_REASON_NONE) {
    return why;
  }
  if (given.defined()) {
    at::assert_no_internal_overlap(given);
    at::assert_no_overlap(given, self);
  }
  const std::int64_t total = counted.total();
  // One column after the other, as CPU lays it out.
  out.set(
      0,
      {total, self.dim()},
      {1, std::max<std::int64_t>(total, 1)},
      self.options().dtype(at::kLong),
      false);
  const at::Tensor& result = out.at(0);
  return result.numel() == 0 ? npu_reason{NPU_REASON_NONE}
                             : counted.fill(build, result);
}

npu_reason nonzero_static(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& self,
    std::int64_t size,
    std::int64_t fill_value) {
  const at::Tensor& given = out.at(0);
  if (self.dim() == 0 || size <= 0 ||
      (given.defined() && given.scalar_type() != at::kLong)) {
    return kLeaveToCpu;
  }
  const at::Tensor& result =
      set_output(out, 0, {size, self.dim()}, self.options().dtype(at::kLong));
  npu_nonzero_attrs attrs{};
  attrs.fill_value = fill_value;
  const npu_tensor rows = to_operand(result);
  Call call = site.call();
  build::nonzero(call, nullptr, &rows, to_operand(self), attrs);
  return run(site, call, self);
}

// ---- masked_select, masked_scatter ----

npu_reason masked_select(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& self,
    const at::Tensor& mask) {
  const at::Tensor& given = out.at(0);
  if (mask.scalar_type() != at::kBool || !mask.is_privateuseone() ||
      !self.is_privateuseone() ||
      (given.defined() && given.scalar_type() != self.scalar_type())) {
    return kLeaveToCpu;
  }
  const auto [wide_mask, wide_self] = at::expand_outplace(mask, self);
  if (wide_self->numel() == 0) {
    return kLeaveToCpu;
  }
  const npu_tensor in = to_operand(*wide_self);
  const npu_tensor where = to_operand(*wide_mask);
  const auto build =
      [&](Call& call, const npu_tensor* total, const npu_tensor* values) {
        build::masked_select(call, total, values, in, where);
      };
  Counted counted(site, self);
  if (const npu_reason why = counted.count(build); why != NPU_REASON_NONE) {
    return why;
  }
  if (given.defined()) {
    at::assert_no_internal_overlap(given);
    at::assert_no_overlap(given, self);
    at::assert_no_overlap(given, mask);
  }
  const at::Tensor& result = set_output(out, 0, {counted.total()}, self);
  return result.numel() == 0 ? npu_reason{NPU_REASON_NONE}
                             : counted.fill(build, result);
}

npu_reason masked_scatter(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& self,
    const at::Tensor& mask,
    const at::Tensor& source) {
  if (mask.scalar_type() != at::kBool || !mask.is_privateuseone() ||
      !source.is_privateuseone() || self.numel() == 0 || source.numel() == 0 ||
      source.scalar_type() != self.scalar_type() || self.is_alias_of(source) ||
      self.is_alias_of(mask) ||
      !at::is_expandable_to(mask.sizes(), self.sizes()) ||
      at::has_internal_overlap(self) == at::MemOverlap::Yes) {
    return kLeaveToCpu;
  }
  const at::Tensor wide_mask = mask.expand(self.sizes());
  Call call = site.call();
  build::masked_scatter(
      call, to_operand(out.at(0)), to_operand(wide_mask), to_operand(source));
  return run_checked(site, call, self);
}

// ---- repeat_interleave ----

npu_reason repeat_interleave(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& repeats,
    std::optional<std::int64_t> output_size) {
  if (repeats.dim() != 1 || (repeats.scalar_type() != at::kLong &&
                             repeats.scalar_type() != at::kInt)) {
    return kLeaveToCpu;
  }
  const npu_tensor in = to_operand(repeats);
  const auto build =
      [&](Call& call, const npu_tensor* total, const npu_tensor* indices) {
        build::repeat_interleave(call, total, indices, in);
      };
  Counted counted(site, repeats);
  if (!output_size) {
    if (const npu_reason why = counted.count(build); why != NPU_REASON_NONE) {
      return why;
    }
    output_size = counted.total();
  }
  const at::Tensor& result = set_output(out, 0, {*output_size}, repeats);
  return result.numel() == 0 ? npu_reason{NPU_REASON_NONE}
                             : counted.fill(build, result);
}

}  // namespace npu::ops
