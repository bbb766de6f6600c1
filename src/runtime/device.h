// SPDX-License-Identifier: Apache-2.0
// npu devices as PyTorch numbers them: count, current one, properties.
#pragma once

#include <c10/core/Device.h>

#include <array>
#include <atomic>

#include "driver/driver.h"

namespace npu {

inline constexpr c10::DeviceType kDeviceType = c10::DeviceType::PrivateUse1;
inline constexpr c10::DeviceIndex kMaxDevices = 64;

// Visible devices (ASCEND_RT_VISIBLE_DEVICES applied); 0 when no driver loads.
// Opens nothing, never throws.
c10::DeviceIndex device_count() noexcept;

// Opens the driver and checks the fork state; idempotent, cheap afterwards.
// Throws what the driver's failure was.
void init();
bool is_initialized() noexcept;
// `fn` is called once, by the first init(). One function; set at load time.
void after_init(void (*fn)()) noexcept;
// True in a child forked after init.
bool in_bad_fork() noexcept;

namespace detail {
// The driver's number of a device that is open, plus one; 0 otherwise, also in
// a forked child. Every operator calls it.
inline std::array<std::atomic<npu_device>, kMaxDevices> open_numbers{};
npu_device open_device(c10::DeviceIndex device);
}  // namespace detail

// Opens `device` at its first use and gives the driver's number for it.
// Throws for an index out of range.
inline npu_device driver_device(c10::DeviceIndex device) {
  const auto at = static_cast<unsigned>(device);
  const npu_device open =
      at < detail::open_numbers.size()
          ? detail::open_numbers[at].load(std::memory_order_acquire)
          : 0;
  return open != 0 ? open - 1 : detail::open_device(device);
}
void check_device_index(c10::DeviceIndex device);
// Opened already: it has a context.
bool device_is_open(c10::DeviceIndex device) noexcept;

c10::DeviceIndex current_device() noexcept;
void set_device(c10::DeviceIndex device);
c10::DeviceIndex exchange_device(c10::DeviceIndex device);
c10::DeviceIndex exchange_device_unchecked(c10::DeviceIndex device) noexcept;
// -1 means the current device.
c10::DeviceIndex device_or_current(c10::DeviceIndex device);

const npu_device_properties& device_properties(c10::DeviceIndex device);

void synchronize_device(c10::DeviceIndex device);

}  // namespace npu
