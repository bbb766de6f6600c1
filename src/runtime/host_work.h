// SPDX-License-Identifier: Apache-2.0
// Work of this thread that no recording of call frames holds: CPU kernels on
// device memory, waiting for a stream, copies between devices. A recorder
// compares the number before and after a call.
#pragma once

#include <cstdint>

namespace npu {

inline std::uint64_t& host_work_of_thread() noexcept {
  static thread_local std::uint64_t seen = 0;
  return seen;
}
// Which operator the last of it was, as the ladder knows operators; null for
// work that is none.
inline const void*& last_host_work() noexcept {
  static thread_local const void* last = nullptr;
  return last;
}
inline void note_host_work(const void* what = nullptr) noexcept {
  ++host_work_of_thread();
  last_host_work() = what;
}

}  // namespace npu
