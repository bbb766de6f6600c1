// SPDX-License-Identifier: Apache-2.0
// The one runner: rungs 1 to 3, and the embedded host driver for frames that
// draw random numbers.
#include "aten/core/runner.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <vector>

#include "aten/core/algorithms.h"
#include "aten/core/queue.h"
#include "aten/core/workspace.h"
#include "compose/compose.h"
#include "driver/registry.h"
#include "runtime/allocator/allocator.h"
#include "runtime/capabilities.h"
#include "runtime/cpu_work.h"
#include "runtime/device.h"
#include "runtime/error.h"
#include "runtime/pinned.h"
#include "runtime/stream.h"

namespace npu {
namespace {

// A driver may ask for one mending after another; more rounds than there are
// sorts of them would be a driver that never has enough.
constexpr int kMostMendings = 4;

npu_reason reason_of(const npu_verdict& verdict) {
  return verdict.reason == NPU_REASON_NONE ? npu_reason{NPU_REASON_NO_KERNEL}
                                           : verdict.reason;
}

std::uint32_t bit_of(npu_reason reason) {
  return 1u << std::min<npu_reason>(reason, 31);
}

// The operands and lists of a frame before they were mended.
class Originals {
 public:
  explicit Originals(npu_call& frame)
      : frame_(frame), compute_dtype_(frame.compute_dtype) {
    std::copy_n(frame.tensors, frame.n_out + frame.n_in, tensors_.begin());
    std::copy_n(frame.lists, frame.n_lists, lists_.begin());
  }
  void restore() const {
    // The frame's arrays are the call's own.
    std::copy_n(
        tensors_.begin(),
        frame_.n_out + frame_.n_in,
        const_cast<npu_tensor*>(frame_.tensors));
    std::copy_n(
        lists_.begin(), frame_.n_lists, const_cast<npu_list*>(frame_.lists));
    frame_.compute_dtype = compute_dtype_;
  }

 private:
  npu_call& frame_;
  const npu_dtype compute_dtype_;
  std::array<npu_tensor, NPU_MAX_OPERANDS> tensors_;
  std::array<npu_list, Call::kMaxLists> lists_;
};

// The parts of a decomposition.
class PartRunner final : public compose::Runner {
 public:
  explicit PartRunner(c10::DeviceIndex device) : device_(device) {}
  ~PartRunner() override {
    if (Recorder* const watching = recorder()) {
      for (c10::DataPtr& memory : memory_) {
        watching->on_temporary(std::move(memory));
      }
    }
  }
  void* allocate(std::uint64_t bytes) override {
    return memory_.emplace_back(npu::allocate(bytes, device_)).get();
  }
  bool run(Call& call) override {
    FrameRun part(call, device_);
    const bool queued = part.run({}) == NPU_REASON_NONE;
    bytes_ += part.copied_bytes();
    return queued;
  }
  std::uint64_t copied_bytes() const noexcept {
    return bytes_;
  }

 private:
  const c10::DeviceIndex device_;
  std::uint64_t bytes_ = 0;
  // Goes back in the order of the stream.
  std::vector<c10::DataPtr> memory_;
};

// What a frame's dtypes are judged by; the second call of a pair is not.
std::uint64_t judged_dtypes(const npu_call& frame) {
  JudgedDtypes judged;
  if ((frame.flags & NPU_CALL_COUNT) != 0) {
    return 0;
  }
  const npu_tensor* const inputs = frame.tensors + frame.n_out;
  for (std::uint32_t i = 0; i < frame.n_in; ++i) {
    if ((inputs[i].flags & NPU_TENSOR_HOST_SCALAR) == 0) {
      judged.see(inputs[i].dtype);
    }
  }
  for (std::uint32_t i = 0; i < frame.n_lists; ++i) {
    judged.see(frame.lists[i].dtype);
  }
  if (judged.bits() == 0 && frame.n_out != 0) {
    judged.see(frame.tensors[0].dtype);  // uniform_, arange
  }
  return judged.bits();
}

class Stopwatch {
 public:
  double seconds() const {
    return std::chrono::duration<double>(Clock::now() - start_).count();
  }

 private:
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start_ = Clock::now();
};

}  // namespace

// ---- rungs 1 and 2 ----

// Mends until the driver takes the call.
npu_reason FrameRun::mend() {
  const Stopwatch watch;
  const Originals originals(call_.frame());
  mender_.emplace(device_);
  for (int round = 0; verdict_.answer != NPU_VERDICT_YES; ++round) {
    const npu_reason why = reason_of(verdict_);
    mended_ |= bit_of(why);
    if (verdict_.answer == NPU_VERDICT_NO || round > kMostMendings ||
        !mender_->mend(call_, verdict_)) {
      originals.restore();
      return why;
    }
    verdict_ = plan_call(call_, active_driver(), driver_device(device_));
  }
  const npu_reason why = queue();
  if (why != NPU_REASON_NONE) {
    originals.restore();
    return why;
  }
  mender_->finish();
  seconds_ = watch.seconds();
  return NPU_REASON_NONE;
}

npu_reason FrameRun::run(const RunOptions& options) {
  npu_call& frame = call_.frame();
  if (C10_LIKELY(options.casts == 0)) {
    verdict_ = plan_call(call_, active_driver(), driver_device(device_));
    if (verdict_.answer == NPU_VERDICT_NO) {
      return reason_of(verdict_);
    }
  } else {
    verdict_ = npu_verdict{};
    verdict_.answer = NPU_VERDICT_IF_CAST;
    verdict_.reason = NPU_REASON_DTYPE;
    verdict_.cast_dtype = frame.compute_dtype;
    verdict_.mask = options.casts;
  }
  carry_ = options.carry;
  return C10_LIKELY(verdict_.answer == NPU_VERDICT_YES) ? queue() : mend();
}

void FrameRun::set_carry() {
  npu_call& frame = call_.frame();
  if ((frame.flags & NPU_CALL_COUNT) != 0 && verdict_.carry_bytes != 0) {
    TORCH_INTERNAL_ASSERT(carry_ != nullptr, "a count call without a Carry");
    carry_->memory = allocate(verdict_.carry_bytes, device_);
    carry_->bytes = verdict_.carry_bytes;
  }
  if (carry_ != nullptr) {
    frame.carry = carry_->memory.get();
    frame.carry_bytes = carry_->bytes;
  }
}

npu_reason FrameRun::queue() {
  npu_call& frame = call_.frame();
  set_carry();
  Workspace workspace;
  if (const npu_reason why = workspace.take(call_, verdict_, device_);
      why != NPU_REASON_NONE) {
    return why;
  }
  if (C10_UNLIKELY((frame.flags & NPU_CALL_BENCHMARK) != 0)) {
    call_.tune(
        active_driver(),
        driver_device(device_),
        current_stream_handle(device_));
  }
  const npu_status status = queue_frame(call_, device_);
  // A list kind has too many operations to list in its capabilities.
  if (status == NPU_E_UNSUPPORTED && frame.n_lists != 0) {
    return NPU_REASON_NO_KERNEL;
  }
  check_driver(status, frame.label);
  workspace.queued(device_);
  return NPU_REASON_NONE;
}

// ---- the other rungs ----

bool run_in_parts(const npu_call& frame, c10::DeviceIndex device) {
  PartRunner parts(device);
  return compose::run(parts, frame);
}

// PyTorch's kernels are better than parts where they are the device's own,
// unless the user switched the kind off.
bool may_compose(std::uint32_t slot, npu_reason why) {
  return (why == NPU_REASON_DISABLED || !twin_is_native()) &&
         compose::has_decomposition(slot);
}

npu_reason Site::run_lower(
    Call& call,
    c10::DeviceIndex device,
    const RunOptions& options,
    npu_reason why) {
  const Stopwatch watch;
  Step step;
  step.reasons = bit_of(why);
  step.calls = 1;
  if (may_compose(slot_, why)) {
    PartRunner parts(device);
    if (compose::run(parts, call.frame())) {
      step.rung = 3;
      step.bytes = parts.copied_bytes();
      step.seconds = watch.seconds();
      count(step);
      return NPU_REASON_NONE;
    }
  }
  if (!options.embedded) {
    return why;
  }
  note_cpu_work(overload_, why);
  step.rung = kEmbedded;
  step.bytes = run_embedded(call, device);
  step.seconds = watch.seconds();
  count(step);
  return NPU_REASON_NONE;
}

npu_reason Site::run(
    Call& call, c10::DeviceIndex device, const RunOptions& options) {
  const std::uint64_t dtypes = judged_dtypes(call.frame());
  const bool counted =
      !dtypes_.takes(dtypes) && dtypes_.may_run(overload_, dtypes);
  FrameRun frame(call, device);
  if (const npu_reason why = frame.run(options);
      C10_UNLIKELY(why != NPU_REASON_NONE)) {
    const npu_reason lower = run_lower(call, device, options, why);
    if (counted && lower == NPU_REASON_NONE) {
      dtypes_.count(dtypes);
    }
    return lower;
  }
  if (C10_UNLIKELY(counted)) {
    dtypes_.count(dtypes);
  }
  if (C10_LIKELY(frame.mended() == 0)) {
    count(1);
  } else {
    count({2, frame.mended(), 1, frame.copied_bytes(), frame.seconds()});
  }
  return NPU_REASON_NONE;
}

}  // namespace npu
