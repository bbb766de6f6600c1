// SPDX-License-Identifier: Apache-2.0
// The optional interfaces of the discrete driver.
#include "optional.h"

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

}  // namespace npu::discrete
