// SPDX-License-Identifier: Apache-2.0
// Records the frames that a thread gives to the driver; graph mode uses it.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/Device.h>
#include <c10/macros/Macros.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "driver/call.h"

namespace npu {

class Generator;

// Bytes moved or set through the driver's memory table: what copies of
// contiguous tensors and numbers on their way to the device come down to.
struct ByteWork {
  enum Kind { kOnDevice, kToDevice, kToHost, kSet };
  Kind kind;
  void* to;
  const void* from;    // nullptr for kSet
  std::int32_t value;  // of kSet
  std::uint64_t bytes;
};

// While installed, sees the work of one thread in the order it was queued.
// Calls come after the driver has taken the work, so nothing is seen twice or
// for nothing. What the CPU rungs compute is not work of the driver.
class Recorder {
 public:
  virtual ~Recorder() = default;
  // A final frame: operands mended, plan and workspaces set. Its arrays hold
  // until this returns. To run it again, keep `plan`; null when it has none.
  virtual void on_frame(
      const npu_call& frame,
      const PlanHandle& plan,
      c10::DeviceIndex device,
      npu_stream stream) = 0;
  virtual void on_bytes(
      const ByteWork& work, c10::DeviceIndex device, npu_stream stream) = 0;
  // Words of a generator were reserved: a frame that has this `rng` draws them.
  // To draw anew when the frame runs again, reserve as many again.
  virtual void on_draw(
      Generator& /*generator*/,
      std::uint64_t /*words*/,
      const npu_rng& /*rng*/) {}
  // Memory that recorded work uses and the runner has no more need of:
  // workspaces, copies of operands, numbers in pinned memory. To run the work
  // again, keep it; else it goes back when this returns.
  virtual void on_temporary(c10::DataPtr memory) = 0;
};

namespace detail {
extern std::atomic<int> installed_recorders;
Recorder* recorder_of_thread() noexcept;
}  // namespace detail

// This thread's recorder or nullptr: one load while no thread has any.
inline Recorder* recorder() noexcept {
  return C10_LIKELY(
             detail::installed_recorders.load(std::memory_order_relaxed) == 0)
             ? nullptr
             : detail::recorder_of_thread();
}

// Installs a recorder on this thread; the one before it, if any, sees nothing
// meanwhile. Destroyed on the same thread.
class RecorderGuard {
 public:
  explicit RecorderGuard(Recorder& recorder) noexcept;
  ~RecorderGuard();
  RecorderGuard(const RecorderGuard&) = delete;
  RecorderGuard& operator=(const RecorderGuard&) = delete;

 private:
  Recorder* const before_;
};

// The work of this thread as text, one line each: "binary.add
// (aten::add.Tensor) out f32[4] in f32[4] f32[4]", "16 bytes to the device".
// For tests and for people who ask what a call becomes.
void start_work_log();
std::vector<std::string> take_work_log();

}  // namespace npu
