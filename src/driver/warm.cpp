// SPDX-License-Identifier: Apache-2.0
// op.warm: once per device and kind, before its first call there.
#include "driver/driver.h"
#include "driver/services.h"
#include "driver/status.h"
#include "npu/kinds.h"

namespace npu {

namespace {

std::uint64_t bit_of(std::uint32_t slot) noexcept {
  return std::uint64_t{1} << (slot % 64);
}

}  // namespace

// Standard kinds have a bit each; a vendor's own are looked up under the lock.
bool Driver::is_warm(npu_device device, std::uint32_t slot) const noexcept {
  if (slot >= kSlots || device < 0 ||
      device >= static_cast<npu_device>(kWarmDevices)) {
    return false;
  }
  const auto word = static_cast<std::uint32_t>(device) * (kSlots / 64);
  return (warmed_[word + slot / 64].load(std::memory_order_acquire) &
          bit_of(slot)) != 0;
}

void Driver::warm(npu_device device, std::uint32_t slot) const {
  const std::lock_guard<std::mutex> lock(warm_mutex_);
  if (!warm_kinds_.emplace(device, slot).second) {
    return;
  }
  if (const npu_status status = op_.warm(device, slot); status != NPU_OK) {
    if (log_enabled(NPU_LOG_WARNING)) {
      const std::string what = std::string(name()) + " op.warm of " +
                               npu_kind_name(slot) +
                               " on npu:" + std::to_string(device);
      log(NPU_LOG_WARNING, failure_text(status, what.c_str()));
    }
    host_services()->set_error(nullptr);
  }
  if (slot < kSlots && device >= 0 &&
      device < static_cast<npu_device>(kWarmDevices)) {
    const auto word = static_cast<std::uint32_t>(device) * (kSlots / 64);
    warmed_[word + slot / 64].fetch_or(bit_of(slot), std::memory_order_release);
  }
}

}  // namespace npu
