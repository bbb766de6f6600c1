// SPDX-License-Identifier: Apache-2.0
// The driver that tests of this folder run on: host, with all kernels.
#pragma once

#include <cstdlib>

#include "driver/driver.h"

namespace npu::compose {

inline Driver& host() {
  static Driver* driver = [] {
    ::setenv("NPU_HOST_KERNELS", "all", 1);
    Driver* loaded = Driver::load(NPU_HOST_DRIVER);
    loaded->device().open(0);
    return loaded;
  }();
  return *driver;
}

}  // namespace npu::compose
