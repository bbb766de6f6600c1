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

struct Plan;  // driver/plan_cache.h
using PlanHandle = std::shared_ptr<Plan>;

// Owns the small arrays a frame points to. Outputs are added before inputs; an
// optional operand that is absent is added as npu_tensor{}. Sizes, strides and
// attributes are referenced, not copied: they live as long as the call.
class Call {
 public:
  static constexpr std::size_t kMaxLists = 16;

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
  // the driver fails rather than declines. The kind is warmed up first.
  npu_verdict plan(const Driver& driver, npu_device device);

  // When the device workspace that plan() asked for cannot be had: plans again
  // with a limit well below it. Anything but NPU_VERDICT_YES is NPU_VERDICT_NO
  // with NPU_REASON_WORKSPACE: the driver can do with no less.
  npu_verdict plan_with_less(const Driver& driver, npu_device device);

  // Lets the driver choose the fastest way by running the call, which has its
  // workspaces; call it between plan() and run(). Does nothing unless the frame
  // is flagged NPU_CALL_BENCHMARK, and once per plan key. Throws Error for a
  // failure that is not about tuning (NPU_E_ASYNC, NPU_E_DEVICE_LOST).
  void tune(const Driver& driver, npu_device device, npu_stream stream) {
    if (plan_ != nullptr && (frame_.flags & NPU_CALL_BENCHMARK) != 0) {
      tune_planned(driver, device, stream);
    }
  }

  // For a graph: keeps the frame's plan alive after this call. May be null.
  const PlanHandle& plan_handle() const noexcept {
    return plan_;
  }

  void set_workspace(void* data, std::uint64_t bytes) noexcept {
    frame_.workspace = data;
    frame_.workspace_bytes = bytes;
  }
  // Lives until the stream passes the call.
  void set_host_workspace(void* data, std::uint64_t bytes) noexcept {
    frame_.host_workspace = data;
    frame_.host_workspace_bytes = bytes;
  }

  // Queues the call; the status is the driver's. With debug logging on, prints
  // one line: label, kind, shapes.
  npu_status run(const Driver& driver, npu_stream stream);

 private:
  npu_tensor& add(const npu_tensor& tensor);
  void prepare(const Driver& driver) noexcept;
  void tune_planned(const Driver& driver, npu_device device, npu_stream stream);

  std::array<npu_tensor, NPU_MAX_OPERANDS> tensors_;
  std::array<npu_list, kMaxLists> lists_;
  npu_call frame_{};
  PlanHandle plan_;
};

// Gives a planned call its device workspace. `take(bytes)` returns memory of
// the stream, or nullptr when there is none of that size (not an exception);
// then the driver is asked to do with less. `verdict` is the plan's. The answer
// is YES and the workspace is set, or NO with NPU_REASON_WORKSPACE.
template <class Take>
npu_verdict fit_workspace(
    Call& call,
    const Driver& driver,
    npu_device device,
    npu_verdict verdict,
    Take&& take) {
  while (verdict.answer == NPU_VERDICT_YES && verdict.workspace_bytes != 0) {
    if (void* const data = take(verdict.workspace_bytes)) {
      call.set_workspace(data, verdict.workspace_bytes);
      break;
    }
    verdict = call.plan_with_less(driver, device);
  }
  return verdict;
}

// "binary.add (aten::add.Tensor) out f32[2, 3] in f32[2, 3] f32[]".
std::string describe(const npu_call& call);

}  // namespace npu
