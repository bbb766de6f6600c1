// SPDX-License-Identifier: Apache-2.0
// A call frame on the stack, filled operand by operand.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "driver/driver.h"

namespace npu {

struct Plan;

// Owns the small arrays a frame points to. Outputs are added before inputs; an
// optional operand that is absent is added as npu_tensor{}. Sizes, strides and
// attributes are referenced, not copied: they live as long as the call.
class Call {
 public:
  static constexpr std::size_t kMaxLists = 8;

  Call(std::uint32_t slot, std::uint32_t code, const char* label) noexcept;
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  ~Call();

  // The flags CONTIGUOUS and DENSE are found out here. Throws Error when there
  // are more operands than a frame holds.
  npu_tensor& add_output(const npu_tensor& tensor);
  npu_tensor& add_input(const npu_tensor& tensor);
  void add_list(const npu_list& list);
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
  // The plan is cached and stays alive as long as this call. Throws Error when
  // the driver fails rather than declines.
  npu_verdict plan(const Driver& driver, npu_device device);

  // Queues the call; the status is the driver's. With debug logging on, prints
  // one line: label, kind, shapes.
  npu_status run(const Driver& driver, npu_stream stream);

 private:
  npu_tensor& add(const npu_tensor& tensor);
  void prepare(const Driver& driver) noexcept;

  std::array<npu_tensor, NPU_MAX_OPERANDS> tensors_;
  std::array<npu_list, kMaxLists> lists_;
  npu_call frame_{};
  std::shared_ptr<Plan> plan_;
};

// "binary.add (aten::add.Tensor) out f32[2, 3] in f32[2, 3] f32[]".
std::string describe(const npu_call& call);

}  // namespace npu
