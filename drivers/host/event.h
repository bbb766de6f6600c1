// SPDX-License-Identifier: Apache-2.0
// One recording of an event; a wait holds the one it was queued with.
#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>

#include "npu/driver.h"

namespace npu::host {

class Recording {
 public:
  using Clock = std::chrono::steady_clock;

  void finish();
  void wait();
  bool done();
  Clock::time_point when();  // once done

 private:
  std::mutex mutex_;
  std::condition_variable finished_;
  bool done_ = false;
  Clock::time_point when_;
};

// Null when the event was never recorded.
std::shared_ptr<Recording> latest_recording(npu_event event);

}  // namespace npu::host
