// SPDX-License-Identifier: Apache-2.0
// Fills frames, asks for plans and hands calls to the driver.
#include "driver/call.h"

#include <algorithm>
#include <iterator>

#include "driver/plan_cache.h"
#include "driver/services.h"
#include "driver/status.h"
#include "driver/verdict.h"
#include "npu/validate.h"

namespace npu {

namespace {

std::string shape_text(const npu_tensor& tensor) {
  if (tensor.dtype == NPU_ABSENT) {
    return "-";
  }
  std::string text = npu_dtype_name(tensor.dtype);
  text += "[";
  for (std::uint32_t d = 0; d < tensor.ndim; ++d) {
    text += (d == 0 ? "" : ", ") + std::to_string(tensor.sizes[d]);
  }
  return text + "]";
}

npu_status after_fork() {
  host_services()->set_error(
      "a forked child cannot use the devices of its parent; use the 'spawn' "
      "start method");
  return NPU_E_SHUTDOWN;
}

[[maybe_unused]] npu_status invalid(const npu_call& call) {
  char text[256];
  const npu_status status = npu_call_validate(&call, text, sizeof(text));
  if (status != NPU_OK) {
    host_services()->set_error(text);
  }
  return status;
}

}  // namespace

Call::Call(std::uint32_t slot, std::uint32_t code, const char* label) noexcept {
  frame_.size = sizeof(frame_);
  frame_.slot = slot;
  frame_.code = code;
  frame_.label = label;
  frame_.tensors = tensors_.data();
  frame_.lists = lists_.data();
}

Call::~Call() = default;

npu_tensor& Call::add(const npu_tensor& tensor) {
  const std::size_t n = frame_.n_out + frame_.n_in;
  if (n >= tensors_.size()) {
    throw Error(
        NPU_E_INVALID,
        "npu: call frame: more than " + std::to_string(tensors_.size()) +
            " operands. Use a kind with lists.");
  }
  npu_tensor& mine = tensors_[n] = tensor;
  if (mine.dtype != NPU_ABSENT && is_contiguous(mine)) {
    mine.flags |= NPU_TENSOR_CONTIGUOUS | NPU_TENSOR_DENSE;
  } else {
    mine.flags &= ~NPU_TENSOR_CONTIGUOUS;
  }
  return mine;
}

npu_tensor& Call::add_output(const npu_tensor& tensor) {
  if (frame_.n_in != 0) {
    throw Error(
        NPU_E_INVALID,
        "npu: call frame: an output was added after an input. Add outputs "
        "first.");
  }
  npu_tensor& mine = add(tensor);
  ++frame_.n_out;
  return mine;
}

npu_tensor& Call::add_input(const npu_tensor& tensor) {
  npu_tensor& mine = add(tensor);
  ++frame_.n_in;
  return mine;
}

void Call::add_list(const npu_list& list) {
  if (frame_.n_lists >= lists_.size()) {
    throw Error(
        NPU_E_INVALID,
        "npu: call frame: more than " + std::to_string(lists_.size()) +
            " lists.");
  }
  npu_list& mine = lists_[frame_.n_lists++] = list;
  mine.size = sizeof(mine);
}

// Sets what follows from the operands and hides flags the driver does not know.
void Call::prepare(const Driver& driver) noexcept {
  bool narrow = true;
  const std::uint32_t n = frame_.n_out + frame_.n_in;
  for (std::uint32_t i = 0; i < n; ++i) {
    if (tensors_[i].dtype != NPU_ABSENT) {
      narrow = narrow && fits_index32(tensors_[i]);
      tensors_[i].flags &= driver.table().tensor_flags_known;
    }
  }
  for (std::uint32_t i = 0; i < frame_.n_lists && narrow; ++i) {
    narrow = fits_index32(lists_[i]);
  }
  frame_.flags = narrow ? frame_.flags | NPU_CALL_INDEX32
                        : frame_.flags & ~NPU_CALL_INDEX32;
  frame_.flags &= driver.table().call_flags_known;
  if (frame_.math_mode > driver.most_math_mode()) {
    frame_.math_mode = NPU_MATH_EXACT;
  }
  frame_.size = driver.frame_bytes();
}

npu_verdict Call::plan(const Driver& driver, npu_device device) {
  if (forked_child()) {
    check(after_fork(), "op.plan");
  }
  if (driver.is_disabled(frame_.slot)) {
    return declined(NPU_REASON_DISABLED, "NPU_DISABLE_KIND");
  }
  const npu_op_caps* caps = driver.caps(frame_.slot, frame_.code);
  if (caps == nullptr) {
    return declined(NPU_REASON_NO_KERNEL);
  }
  const npu_verdict verdict = verdict_of_caps(*caps, driver.table(), frame_);
  if (verdict.answer != NPU_VERDICT_YES) {
    return verdict;
  }
  driver.ensure_warm(device, frame_.slot);
  prepare(driver);
  if (caps->plan_use == NPU_PLAN_NONE) {
    return verdict;
  }
  plan_ = find_plan(driver, device, frame_, caps->plan_use);
  frame_.plan = plan_->verdict.plan;
  return plan_->verdict;
}

npu_verdict Call::plan_with_less(const Driver& driver, npu_device device) {
  constexpr std::uint64_t kNone = 1;  // workspace_limit: 0 is no limit
  constexpr std::uint64_t kSmall = std::uint64_t{64} << 10;
  const std::uint64_t asked =
      plan_ == nullptr ? 0 : plan_->verdict.workspace_bytes;
  // A driver of 1.0 does not see the limit; one that was left nothing and
  // still asks does not look at it.
  if (asked == 0 || driver.minor() == 0 || frame_.workspace_limit == kNone) {
    return declined(NPU_REASON_WORKSPACE);
  }
  frame_.workspace_limit = asked / 4 < kSmall ? kNone : asked / 4;
  const npu_verdict verdict = plan(driver, device);
  const bool less =
      verdict.answer == NPU_VERDICT_YES && verdict.workspace_bytes < asked;
  return less ? verdict : declined(NPU_REASON_WORKSPACE);
}

void Call::tune_planned(
    const Driver& driver, npu_device device, npu_stream stream) {
  const npu_op_caps* caps = driver.caps(frame_.slot, frame_.code);
  if (caps == nullptr || forked_child()) {
    return;
  }
  prepare(driver);
  plan_ = tune_plan(plan_, device, stream, frame_, caps->plan_use);
  frame_.plan = plan_->verdict.plan;
}

npu_status Call::run(const Driver& driver, npu_stream stream) {
  if (forked_child()) {
    return after_fork();
  }
  prepare(driver);
#ifndef NDEBUG
  if (const npu_status status = invalid(frame_); status != NPU_OK) {
    return status;
  }
#endif
  if (log_enabled(NPU_LOG_DEBUG)) {
    log(NPU_LOG_DEBUG,
        "run on " + std::string(driver.name()) + ": " + describe(frame_) +
            " rung native");
  }
  return driver.run(stream, frame_);
}

std::string describe(const npu_call& call) {
  std::string text = npu_kind_name(call.slot);
  const npu_kind_info* kind = npu_kind_of(call.slot);
  if (kind == nullptr) {
    text = "slot " + std::to_string(call.slot);
  } else if (kind->n_codes > 1) {
    text += std::string(".") + npu_code_name(call.slot, call.code);
  }
  text += std::string(" (") + (call.label != nullptr ? call.label : "?") + ")";
  constexpr const char* kModes[] = {
      "", " tf32", " half accumulator", " half partials"};
  text += call.math_mode < std::size(kModes) ? kModes[call.math_mode] : "";
  for (std::uint32_t i = 0; i < call.n_out + call.n_in; ++i) {
    text += i == 0 ? " out" : "";
    text += i == call.n_out ? " in" : "";
    text += " " + shape_text(call.tensors[i]);
  }
  for (std::uint32_t i = 0; i < call.n_lists; ++i) {
    text += " list " + std::string(npu_dtype_name(call.lists[i].dtype)) +
            " x " + std::to_string(call.lists[i].n);
  }
  return text;
}

}  // namespace npu
