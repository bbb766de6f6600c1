// SPDX-License-Identifier: Apache-2.0
// A call frame on the stack, filled operand by operand.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "driver/driver.h"

namespace npu {

// Owns the small arrays a frame points to. Outputs are added before inputs.
// Sizes and strides are referenced, not copied: they live as long as the call.
class Call {
 public:
  Call(std::uint32_t slot, std::uint32_t code, const char* label) noexcept;
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  npu_tensor& add_output(const npu_tensor& tensor);
  npu_tensor& add_input(const npu_tensor& tensor);
  template <class Attrs>
  void set_attrs(const Attrs& attrs) noexcept {
    frame_.attrs = &attrs;
    frame_.attr_bytes = sizeof(Attrs);
  }
  void set_rng(const npu_rng& rng) noexcept {
    frame_.rng = rng;
  }

  npu_call& frame() noexcept {
    return frame_;
  }
  const npu_call& frame() const noexcept {
    return frame_;
  }

  // Asks the driver (caps, then plan where the kind uses plans). A verdict of
  // NPU_VERDICT_NO carries the reason. NPU_DISABLE_KIND is honoured here.
  npu_verdict plan(const Driver& driver, npu_device device);

  // Queues the call; the status is the driver's. With debug logging on, prints
  // one line: label, kind, shapes.
  npu_status run(const Driver& driver, npu_stream stream);

 private:
  std::array<npu_tensor, NPU_MAX_OPERANDS> tensors_;
  npu_call frame_{};
};

}  // namespace npu
