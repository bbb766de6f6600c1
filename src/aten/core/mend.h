// SPDX-License-Identifier: Apache-2.0
// Rung 2: operands as the driver wants them, through copies on the device.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/Device.h>
#include <c10/util/SmallVector.h>

#include <cstdint>
#include <deque>
#include <vector>

#include "driver/call.h"

namespace npu {

// For one call. Temporaries live as long as this object; their memory goes back
// in the order of the stream, so the call may still be queued then.
class Mender {
 public:
  explicit Mender(c10::DeviceIndex device) : device_(device) {}
  ~Mender();
  Mender(const Mender&) = delete;
  Mender& operator=(const Mender&) = delete;

  // Replaces the operands and lists that `verdict` names. False when a copy
  // cannot be made on the device; the frame is then to be restored.
  bool mend(Call& call, const npu_verdict& verdict);
  // After the call was queued: copies temporaries back to the outputs.
  void finish();
  // Copied so far, in and out.
  std::uint64_t bytes() const noexcept {
    return bytes_;
  }

 private:
  // An output and the temporary that the driver writes instead.
  struct Replaced {
    npu_tensor output;
    npu_tensor temporary;
  };
  using Dims = c10::SmallVector<std::int64_t, 6>;

  void* allocate(std::uint64_t bytes);
  npu_tensor contiguous_like(const npu_tensor& tensor, npu_dtype dtype);
  bool copy(const npu_tensor& to, const npu_tensor& from);
  bool can_copy(const npu_tensor& to, const npu_tensor& from) const;
  npu_verdict plan_copy(
      Call& call, const npu_tensor& to, const npu_tensor& from) const;
  // False when the plan did not say yes, or there is no memory for it.
  bool queue_planned(Call& call, npu_verdict verdict, const char* what);
  bool fill(const npu_tensor& to, const npu_scalar& value);
  // Bytes of the caller's, in device memory.
  void* upload(const void* numbers, std::uint64_t bytes);

  bool mend_output(Call& call, std::uint32_t place, npu_dtype dtype);
  bool mend_input(const npu_call& frame, npu_tensor& tensor, npu_dtype dtype);
  bool mend_number(const npu_call& frame, npu_tensor& number, npu_dtype dtype);
  bool mend_list(
      const npu_call& frame,
      npu_list& list,
      std::uint32_t mode,
      const npu_verdict& verdict);
  bool move_list(
      npu_list& list,
      npu_dtype dtype,
      std::uint64_t alignment,
      std::uint32_t mode);
  void upload_list(npu_list& list, std::uint64_t spacing);

  const c10::DeviceIndex device_;
  std::uint64_t bytes_ = 0;
  std::vector<c10::DataPtr> memory_;
  // Deques: addresses stay.
  std::deque<Dims> dims_;
  std::deque<std::vector<void*>> pointers_;
  std::vector<Replaced> outputs_;
};

}  // namespace npu
