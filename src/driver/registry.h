// SPDX-License-Identifier: Apache-2.0
// Which driver this process uses, and where drivers are looked for.
#pragma once

#include <atomic>
#include <string>
#include <vector>

#include "driver/driver.h"

namespace npu {

// The folder of drivers that ship with the package; set once, before first use.
void set_package_driver_dir(const std::string& dir);

// The platform whose accelerator this PyTorch is built for, as drivers name
// it ("cuda"); empty for a build for the CPU alone. Set once, before first use.
void set_torch_platform(const std::string& name);
// As drivers read it.
const char* torch_platform() noexcept;

// Folders searched for a driver called by name, in order: NPU_DRIVER_PATH
// (colon separated), then the package's.
std::vector<std::string> driver_search_path();

namespace detail {
// Null until load_active_driver() has succeeded once.
extern std::atomic<Driver*> active_driver;
Driver& load_active_driver();
}  // namespace detail

// The driver chosen by NPU_DRIVER (auto when unset: the driver of PyTorch's
// accelerator where it finds a device, host otherwise), loaded on first call. A
// failure is kept: every call throws the same Error until the process ends.
// Asked a dozen times per operator, so that it has to be a load and no call.
inline Driver& active_driver() {
  Driver* const driver = detail::active_driver.load(std::memory_order_acquire);
  return driver != nullptr ? *driver : detail::load_active_driver();
}
// The same without throwing: nullptr, and the reason through driver_failure().
Driver* active_driver_or_null() noexcept;
std::string driver_failure();
// Why auto took the driver it took; empty where NPU_DRIVER names one.
std::string driver_choice_reason();

// The embedded host driver, always there: runs random frames and the
// conformance oracle when another driver is active.
Driver& host_driver();

}  // namespace npu
