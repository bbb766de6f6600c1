// SPDX-License-Identifier: Apache-2.0
// What devices do from start to stop; one trace at a time.
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

class WorkTrace {
 public:
  // Never destroyed: threads may be inside of it at exit.
  static WorkTrace& instance();

  // False when one is under way, or there is no driver. `lines`: every launch
  // notes the line of the user's program; without it, waits of the host do.
  bool start(bool lines = false);
  // Waits for the work that was recorded. Oldest first; work of unknown
  // time is left out. Empty when no recording was active.
  std::vector<Record> stop();
  bool is_on() const noexcept {
    return on_.load(std::memory_order_acquire);
  }
  // What the last stop() had to say, for the user.
  std::vector<std::string> complaints() const;

  // From the watch.
  npu_status launch(const Launch& launch) noexcept;
  void add(Record&& record);
  // The line of a launch, or nullptr.
  const std::string* line_of_launch() const;

 private:
  enum class Way { kInline, kDriver, kEvents };

  WorkTrace() = default;
  void fill_host_times(std::vector<Record>& records);
  void resolve_some();

  std::atomic<bool> on_{false};
  std::atomic<bool> lines_{false};
  std::atomic<std::uint64_t> numbers_{0};
  mutable std::mutex mutex_;
  Way way_ = Way::kInline;
  std::unique_ptr<c10::ApproximateClockToUnixTimeConverter> clock_;
  EventTimes events_;
  DriverTimes driver_;
  std::vector<std::string> complaints_;
};

// "train.py:31 in step": where the calling thread is in the user's program, and
// empty where it runs none. Asked while a recording is under way; given once.
using LineFn = std::string (*)();
void set_line_provider(LineFn provider) noexcept;

// The device and lane of a stream, and the thread that launches; filled in.
void place(Record& record) noexcept;

}  // namespace npu::profiler
