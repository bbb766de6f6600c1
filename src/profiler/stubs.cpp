// SPDX-License-Identifier: Apache-2.0
// torch.autograd.profiler.profile(use_device="npu"): an event before and after
// each operator, no lanes.
#include <torch/csrc/profiler/stubs/base.h>

#include <c10/core/DeviceGuard.h>
#include <c10/util/ApproximateClock.h>

#include <memory>

#include "runtime/device.h"
#include "runtime/event.h"
#include "runtime/stream.h"

namespace npu::profiler {
namespace {

using torch::profiler::impl::ProfilerVoidEventStub;

struct Stubs final : torch::profiler::impl::ProfilerStubs {
  void record(
      c10::DeviceIndex* device,
      ProfilerVoidEventStub* event,
      std::int64_t* cpu_ns) const override {
    if (device != nullptr) {
      *device = current_device();
    }
    auto made = std::make_shared<Event>(NPU_EVENT_TIMING);
    if (cpu_ns != nullptr) {
      *cpu_ns = c10::getTime();
    }
    made->record(current_stream());
    *event = std::move(made);
  }

  // Microseconds.
  float elapsed(
      const ProfilerVoidEventStub* from,
      const ProfilerVoidEventStub* to) const override {
    const auto& first = *static_cast<const Event*>(from->get());
    const auto& last = *static_cast<const Event*>(to->get());
    first.synchronize();
    last.synchronize();
    constexpr double kUsPerMs = 1000;
    return static_cast<float>(first.elapsed_ms(last) * kUsPerMs);
  }

  void mark(const char*) const override {}
  void rangePush(const char*) const override {}
  void rangePop() const override {}
  bool enabled() const override {
    return device_count() > 0;
  }
  void onEachDevice(std::function<void(int)> visit) const override {
    for (c10::DeviceIndex device = 0; device < device_count(); ++device) {
      if (device_is_open(device)) {
        const c10::DeviceGuard guard(c10::Device(kDeviceType, device));
        visit(device);
      }
    }
  }
  void synchronize() const override {
    if (is_initialized()) {
      synchronize_device(current_device());
    }
  }
};

[[maybe_unused]] const bool stubs_registered = [] {
  static auto* const stubs = new Stubs;
  torch::profiler::impl::registerPrivateUse1Methods(stubs);
  return true;
}();

}  // namespace
}  // namespace npu::profiler
