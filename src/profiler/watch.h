// SPDX-License-Identifier: Apache-2.0
// Device work as it happens, shown to listeners: a recording, the meter of
// `opennpu top`. Without a listener no code of ours runs
// (driver/launch_watch.h; calls_are_heard() is what the CPU rungs ask anyway).
#pragma once

#include <c10/core/Device.h>

#include <string>

#include "driver/services.h"
#include "profiler/record.h"

namespace npu::profiler {

enum class Reason : unsigned { kRecording = 1, kMeter = 2 };
void watch_for(Reason reason, bool on);
// Bits of Reason; for tests.
unsigned watched_for() noexcept;

// A CPU kernel that ran, until now, as work of the device's current stream,
// where the device is the CPU.
void on_cpu_kernel(
    c10::DeviceIndex device, const std::string& overload, Ticks begin);

// A collective is asked for on one thread and done on another.
struct Asked {
  bool heard = false;
  std::int32_t thread = 0;
  Origin origin;
  Ticks at = 0;
  const std::string* line = nullptr;
};
Asked ask_for_collective_slowly();
inline Asked ask_for_collective() {
  return calls_are_heard() ? ask_for_collective_slowly() : Asked{};
}
// Done, now. `bytes` are this rank's own.
struct Collective {
  c10::DeviceIndex device = 0;
  const std::string& text;
  std::uint64_t bytes = 0;
  Ticks begin = 0;
  Ticks met = 0;  // the ranks had all come
};
void on_collective(const Asked& asked, const Collective& collective);

}  // namespace npu::profiler
