// SPDX-License-Identifier: Apache-2.0
// Is this still the process something was made in?
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>

namespace optools {

inline std::atomic<uint64_t> g_process{1};

// Another number in a forked child; getpid() would be a system call.
inline uint64_t process_number() {
  static const int once =
      ::pthread_atfork(nullptr, nullptr, [] { ++g_process; });
  static_cast<void>(once);
  return g_process.load(std::memory_order_relaxed);
}

// What a forked child has of its parent's threads' work: memory that is never
// released.
class OwnProcess {
 public:
  bool still() const {
    return process_number() == number_;
  }

 private:
  uint64_t number_ = process_number();
};

}  // namespace optools
