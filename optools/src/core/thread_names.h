// SPDX-License-Identifier: Apache-2.0
// What the system calls the threads that have called operators.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace optools {

struct ThreadName {
  uint32_t number;  // ThreadState::id
  int64_t system;   // the system's number of it
  std::string name;
};

// The newest 4096, also of threads that have ended.
std::vector<ThreadName> thread_names();

}  // namespace optools
