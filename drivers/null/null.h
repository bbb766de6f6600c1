// SPDX-License-Identifier: Apache-2.0
// What the files of this driver share.
#pragma once

#include <atomic>
#include <cstdint>

#include "npu/kinds.h"

namespace npu::null {

inline const npu_host_services* services = nullptr;
// False after shutdown, and in a child forked after a device was opened.
inline std::atomic<bool> alive{false};
inline std::atomic<bool> opened{false};

// Stores this thread's error text and returns the status.
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
// NPU_OK when the driver is alive and none of the pointers is null.
template <class... Pointers>
npu_status check_given(Pointers... pointers) {
  return ((pointers != nullptr) && ...)
             ? check_alive()
             : fail(NPU_E_INVALID, "npu: null: an argument must not be null.");
}
template <class Body, class... Pointers>
npu_status when_given(Body body, Pointers... pointers) {
  const npu_status status = check_given(pointers...);
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
extern const npu_op_table op_table;
// The driver's environment variables; a bad value is an error with a text.
npu_status read_settings();

}  // namespace npu::null
