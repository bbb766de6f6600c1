// SPDX-License-Identifier: Apache-2.0
// Calls whose results have a size that only the data tell.
#pragma once

#include "aten/core/factories.h"
#include "aten/ops/op.h"

namespace npu {

// Two calls: the first counts into device memory, the second fills what was
// made for that many. What the driver wants to keep between them is kept here.
class Counted {
 public:
  Counted(NativeSite& site, const at::Tensor& on)
      : site_(site),
        device_(on.device().index()),
        total_(make_empty({}, at::kLong, device_)) {}

  // build(call, total, {}) fills the frame of the first call.
  template <class Build>
  npu_reason count(Build build) {
    Call call = site_.call();
    call.frame().flags |= NPU_CALL_COUNT;
    build(call, total_, at::Tensor());
    return run_checked(site_, call, device_, IndexError::kCpus, &carry_);
  }
  std::int64_t total() const {
    return total_.item<std::int64_t>();
  }
  // build(call, {}, out) fills that of the second, unless nothing was counted.
  template <class Build>
  npu_reason fill(Build build, const at::Tensor& out) {
    if (out.numel() == 0) {
      return NPU_REASON_NONE;
    }
    Call call = site_.call();
    build(call, at::Tensor(), out);
    return run_checked(site_, call, device_, IndexError::kCpus, &carry_);
  }

 private:
  NativeSite& site_;
  const c10::DeviceIndex device_;
  at::Tensor total_;
  Carry carry_;
};

}  // namespace npu
