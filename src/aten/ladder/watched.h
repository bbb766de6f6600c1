// SPDX-License-Identifier: Apache-2.0
// Before an operator of a CPU rung runs: what the sanitizer found is raised.
#pragma once

#include "aten/twin/entry.h"
#include "runtime/sanitizer/sanitizer.h"

namespace npu::ladder {

// The chip of the profile would wait for the CPU here.
inline void check_watched(twin::Entry& entry) {
  if (sanitizer::reports_syncs()) {
    bool falls_back = false;
    {
      const std::lock_guard<std::mutex> lock(entry.mutex);
      falls_back = entry.falls_back;
    }
    if (falls_back) {
      sanitizer::on_host_wait(entry.reported + ", which runs on the CPU");
    }
  }
  sanitizer::raise_pending();
}

}  // namespace npu::ladder
