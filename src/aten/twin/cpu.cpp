// SPDX-License-Identifier: Apache-2.0
// The CPU's twin: PyTorch's CPU kernels on memory that host code can read, or
// on copies of it (rung 5).
#include <c10/core/CPUAllocator.h>

#include "aten/twin/twin.h"
#include "driver/registry.h"
#include "driver/services.h"
#include "runtime/error.h"
#include "runtime/stream.h"

namespace npu::twin {
namespace {

// A function that keeps the allocator shim's state is all that surrounds a CPU
// kernel; TwinCall calls the parts for results itself, without a virtual call.
class CpuTwin final : public Twin {
 public:
  CpuTwin()
      : Twin(
            {"CPU",
             c10::DeviceType::CPU,
             c10::BackendComponent::CPUBit,
             /*numbered=*/false,
             /*waits=*/true,
             /*widens=*/true}) {}

  c10::Allocator* allocator() const override {
    return c10::GetCPUAllocator();
  }
  bool owns(const c10::DataPtr& data) const noexcept override {
    return is_pool_block(data);
  }
  void adopt(c10::DataPtr& data, c10::Device npu) const override {
    hand_over(data, npu);
  }
  const char* refusal(const Entry&) const override {
    return nullptr;
  }
  Outer enter(c10::Device, const ShimState& shim) const override {
    return {exchange_shim(shim), std::nullopt, std::nullopt};
  }
  void leave(const Outer& outer) const noexcept override {
    exchange_shim(outer.shim);
  }
};

}  // namespace

const Twin& cpu_twin() {
  static const auto* const twin = new CpuTwin;
  return *twin;
}

void drain(c10::Device npu) {
  const Driver& driver = active_driver();
  if (C10_LIKELY(!driver.queues_work() && !forked_child())) {
    return;
  }
  check_driver(
      driver.stream().synchronize(current_stream_handle(npu.index())),
      "wait for the current stream");
}

}  // namespace npu::twin
