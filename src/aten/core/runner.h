// SPDX-License-Identifier: Apache-2.0
// How a frame gets to the driver: plan, mend, workspaces, queue. Site::run is
// what the rest of the plugin calls.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <optional>

#include "aten/core/mend.h"
#include "aten/core/site.h"

namespace npu {

// Rungs 1 and 2 for one frame.
class FrameRun {
 public:
  FrameRun(Call& call, c10::DeviceIndex device)
      : call_(call), device_(device) {}

  // NPU_REASON_NONE when it was queued; else the frame is as it came.
  npu_reason run(const RunOptions& options);

  // What had to be mended, bit r for npu_reason r; 0 = rung 1.
  std::uint32_t mended() const noexcept {
    return mended_;
  }
  std::uint64_t copied_bytes() const noexcept {
    return mender_ ? mender_->bytes() : 0;
  }
  // Spent on rung 2, on the calling thread.
  double seconds() const noexcept {
    return seconds_;
  }

 private:
  npu_reason mend();
  void set_carry();
  npu_reason queue();

  Call& call_;
  const c10::DeviceIndex device_;
  Carry* carry_ = nullptr;
  npu_verdict verdict_;
  std::uint32_t mended_ = 0;
  double seconds_ = 0;
  std::optional<Mender> mender_;
};

// Queues a frame as calls of other kinds, planned one by one. False when that
// is not possible.
bool run_in_parts(const npu_call& frame, c10::DeviceIndex device);

// Whether rung 3 is worth a try for a kind the driver lacks or declines.
bool may_compose(std::uint32_t slot, npu_reason why);

// Runs the frame on the embedded host driver, on the same bytes where host code
// can reach them, and waits for it. Returns how many were copied. Throws when
// it fails.
std::uint64_t run_embedded(Call& call, c10::DeviceIndex device);

}  // namespace npu
