// SPDX-License-Identifier: Apache-2.0
// The optional interfaces of the discrete driver.
#include "optional.h"

#include <cstdlib>

#include "comm_queue.h"

namespace npu::discrete {

const void* optional_interface(const char* name) {
  for (const auto ask :
       {profiler_interface, capture_interface, comm_interface}) {
    if (const void* const found = ask(name)) {
      return found;
    }
  }
  return nullptr;
}

npu_status refuse_capture(npu_stream stream) {
  Captured* const captured = captured_by(stream);
  if (captured == nullptr) {
    return NPU_OK;
  }
  const std::lock_guard lock(captured->mutex);
  captured->broken = true;
  return fail(NPU_E_INVALID, "the stream records: this cannot be recorded.");
}

const npu_driver* with_platform(const npu_driver& driver) {
  static npu_driver given = driver;
  given.platform = std::getenv("NPU_DISCRETE_PLATFORM");
  given.event = reporting_events(driver.event);
  return &given;
}

}  // namespace npu::discrete
