// SPDX-License-Identifier: Apache-2.0
// The plugin as a whole: its name in PyTorch, and its shutdown.
#include "runtime/backend.h"

#include <c10/core/DeviceType.h>

#include <mutex>

#include "driver/registry.h"
#include "runtime/autograd_threads.h"
#include "runtime/device.h"

namespace npu {

void register_backend() {
  static std::once_flag once;
  std::call_once(once, [] { c10::register_privateuse1_backend(kBackendName); });
}

void prepare_exit() noexcept {
  stop_autograd_threads();
  if (!is_initialized()) {
    return;
  }
  // There is no caller left to report a failure to.
  for (c10::DeviceIndex i = 0; i < device_count(); ++i) {
    if (device_is_open(i)) {
      active_driver_or_null()->device().synchronize(driver_device(i));
    }
  }
}

}  // namespace npu
