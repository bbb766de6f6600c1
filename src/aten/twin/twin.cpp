// SPDX-License-Identifier: Apache-2.0
// Which twin a device has.
#include "aten/twin/twin.h"

#include <array>
#include <atomic>

#include "driver/services.h"
#include "runtime/capabilities.h"
#include "runtime/device.h"

namespace npu::twin {
namespace {

Reach find_host_reach(c10::DeviceIndex device) {
  return {&cpu_twin(), !host_can_read(device), needs_host_open(device)};
}

// The twin of the driver's platform where it is not the CPU's.
const Twin* find_other_twin() {
  if (platform() != Platform::kCuda) {
    return nullptr;
  }
  const Twin* const found = cuda_twin();
  if (found == nullptr) {
    log(NPU_LOG_WARNING,
        "npu: ladder: the driver's platform is cuda and this torch has no CUDA "
        "kernels: operators that the driver lacks run on the CPU. Install a "
        "CUDA build of torch.");
  }
  return found;
}

}  // namespace

const Twin* other_twin() {
  static const Twin* const found = find_other_twin();
  return found;
}

const Reaches& reaches_of(c10::Device npu) {
  static std::array<std::atomic<const Reaches*>, kMaxDevices> known{};
  auto& slot = known[static_cast<std::size_t>(npu.index())];
  const Reaches* found = slot.load(std::memory_order_acquire);
  if (C10_UNLIKELY(found == nullptr)) {
    Reaches made{};
    made.own = made.host = find_host_reach(npu.index());
    if (const Twin* const other = other_twin()) {
      made.own = {other, /*copies=*/false, /*opens=*/false};
    }
    // Two threads may make it; one is kept and both are equal.
    const auto* const mine = new Reaches(made);
    if (slot.compare_exchange_strong(found, mine)) {
      found = mine;
    } else {
      delete mine;
    }
  }
  return *found;
}

std::atomic<detail::CpuFunctions> detail::cpu_functions{CpuFunctions::kUnknown};

detail::CpuFunctions detail::find_cpu_functions() {
  const CpuFunctions found =
      other_twin() == nullptr ? CpuFunctions::kUsed : CpuFunctions::kNotUsed;
  cpu_functions.store(found, std::memory_order_relaxed);
  return found;
}

}  // namespace npu::twin
