// SPDX-License-Identifier: Apache-2.0
// Rung 2: operands as the driver wants them, through copies on the device.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/util/SmallVector.h>

#include <cstdint>
#include <deque>
#include <vector>

#include "driver/call.h"

namespace npu {

// For one call. Temporaries live as long as this object; memory goes back in
// the order of the stream, so the call may still be queued then.
class Mender {
 public:
  Mender(const Driver& driver, c10::DeviceIndex device)
      : driver_(driver), device_(device) {}

  // Replaces the operands that `verdict` names. False when a copy cannot be
  // made on the device: then nothing has changed.
  bool mend(Call& call, const npu_verdict& verdict);
  // After the call was queued: brings outputs home.
  void finish();

 private:
  struct Moved {
    npu_tensor home;
    npu_tensor stand_in;
  };
  using Dims = c10::SmallVector<std::int64_t, 6>;

  npu_tensor contiguous_like(const npu_tensor& tensor, npu_dtype dtype);
  bool copy(const npu_tensor& to, const npu_tensor& from);
  bool mend_input(npu_tensor& tensor, const npu_tensor& like, npu_dtype dtype);

  const Driver& driver_;
  const c10::DeviceIndex device_;
  std::vector<c10::DataPtr> memory_;
  std::deque<Dims> dims_;  // addresses stay
  std::vector<Moved> outputs_;
};

}  // namespace npu
