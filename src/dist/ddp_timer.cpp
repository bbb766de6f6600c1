// SPDX-License-Identifier: Apache-2.0
// The clock by which DistributedDataParallel measures its steps: without one
// for the device it warns, and `_get_ddp_logging_data` has no times.
#include <c10/core/DeviceGuard.h>
#include <torch/csrc/distributed/c10d/reducer_timer.hpp>

#include <array>

#include "runtime/device.h"
#include "runtime/event.h"
#include "runtime/stream.h"

namespace npu::dist {
namespace {

// A reading of the host's clock for those who ask when, an event on the stream
// for those who ask how long.
class DdpTimer : public c10d::Timer {
 public:
  explicit DdpTimer(c10::Device device) : device_(device) {}

  void record(Event which) override {
    Timer::record(which);
    const c10::DeviceGuard guard(device_);
    event(which).record(current_stream(device_.index()));
  }

  // Called at the start of the next step, when both have passed.
  std::optional<std::int64_t> measureDifference(
      Event start, Event end) override {
    const npu::Event& from = event(start);
    const npu::Event& to = event(end);
    if (!from.is_recorded() || !to.is_recorded()) {
      return std::nullopt;  // no backward yet, or without communication
    }
    from.synchronize();
    to.synchronize();
    const double ms = from.elapsed_ms(to);
    if (ms < 0) {  // of two different steps
      return std::nullopt;
    }
    return static_cast<std::int64_t>(ms * 1e6);
  }

 private:
  npu::Event& event(Event which) {
    return events_[static_cast<std::size_t>(which)];
  }

  const c10::Device device_;
  std::array<npu::Event, 5> events_{
      npu::Event(NPU_EVENT_TIMING),
      npu::Event(NPU_EVENT_TIMING),
      npu::Event(NPU_EVENT_TIMING),
      npu::Event(NPU_EVENT_TIMING),
      npu::Event(NPU_EVENT_TIMING)};
};

}  // namespace
}  // namespace npu::dist

// The registry's macro names things of its own namespace.
namespace c10d {
C10_REGISTER_TYPED_CLASS(
    TimerRegistry, c10::DeviceType::PrivateUse1, npu::dist::DdpTimer);
}  // namespace c10d
