// SPDX-License-Identifier: Apache-2.0
// A recording of device work, from start to stop; one at a time.
//
// Where work is done when the call that queued it returns, its times are the
// host's, read right before and after. Elsewhere the driver's own recorder
// (profiler/1) is asked, or its events.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "driver/launch_watch.h"
#include "profiler/driver_times.h"
#include "profiler/event_times.h"
#include "profiler/record.h"

namespace npu::profiler {

class Recording {
 public:
  // Never destroyed: threads may be inside of it at exit.
  static Recording& instance();

  // False when one is under way, or there is no driver.
  bool start();
  // Waits for the work that was recorded. Oldest first; work whose times
  // nobody knows is left out. Empty when none was under way.
  std::vector<Record> stop();
  bool is_on() const noexcept {
    return on_.load(std::memory_order_acquire);
  }
  // What the last stop() had to say, for the user.
  std::vector<std::string> complaints() const;

  // From the watch.
  npu_status launch(const Launch& launch) noexcept;
  void add(Record&& record);

 private:
  enum class Way { kInline, kDriver, kEvents };

  Recording() = default;
  void fill_host_times(std::vector<Record>& records);
  void settle_some();

  std::atomic<bool> on_{false};
  std::atomic<std::uint64_t> numbers_{0};
  mutable std::mutex mutex_;
  Way way_ = Way::kInline;
  std::unique_ptr<c10::ApproximateClockToUnixTimeConverter> clock_;
  EventTimes events_;
  DriverTimes driver_;
  std::vector<std::string> complaints_;
};

// The device and lane of a stream, and the thread that launches; filled in.
void place(Record& record) noexcept;

}  // namespace npu::profiler
