// SPDX-License-Identifier: Apache-2.0
// What the files of this driver share.
#pragma once

#include <atomic>
#include <cstdint>

#include "npu/kinds.h"

namespace npu::null {

inline const npu_host_services* services = nullptr;
inline std::atomic<bool> alive{false};  // false after shutdown and in a child

// Store this thread's error text and hand the status back.
inline npu_status fail(npu_status status, const char* text) {
  services->set_error(text);
  return status;
}
inline npu_status check_alive() {
  return alive ? NPU_OK
               : fail(
                     NPU_E_SHUTDOWN,
                     "npu: null: used after shutdown or in a forked child. "
                     "Start worker processes with spawn.");
}
template <class Body>
npu_status when_alive(Body body) {
  const npu_status status = check_alive();
  if (status == NPU_OK) {
    body();
  }
  return status;
}
inline npu_status check_device(npu_device device) {
  return device == 0 ? check_alive()
                     : fail(NPU_E_INVALID, "npu: null: there is only npu:0.");
}

std::uint64_t total_memory();
std::uint64_t used_memory();
extern const npu_memory_table memory_table;
extern const npu_stream_table stream_table;
extern const npu_event_table event_table;

}  // namespace npu::null
