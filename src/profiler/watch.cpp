// SPDX-License-Identifier: Apache-2.0
// Device work as it happens, shown to listeners.
#include "profiler/watch.h"

#include <atomic>
#include <mutex>
#include <string_view>
#include <utility>

#include "driver/registry.h"
#include "profiler/meter.h"
#include "profiler/thread_log.h"
#include "profiler/work_trace.h"
#include "runtime/capabilities.h"
#include "runtime/stream.h"

namespace npu::profiler {
namespace {

std::atomic<unsigned> reasons{0};

bool has(unsigned all, Reason reason) {
  return (all & static_cast<unsigned>(reason)) != 0;
}

class Watch final : public LaunchListener {
 public:
  npu_status on_launch(const Launch& launch) noexcept override {
    if (WorkTrace::instance().is_on()) {
      return has(watched_for(), Reason::kMeter)
                 ? meter_launch(
                       launch,
                       [](const Launch& l) {
                         return WorkTrace::instance().launch(l);
                       })
                 : WorkTrace::instance().launch(launch);
    }
    return meter_launch(launch, [](const Launch& l) { return l.give(0); });
  }
};

Watch& watch() {
  static auto* const instance = new Watch;
  return *instance;
}

}  // namespace

unsigned watched_for() noexcept {
  return reasons.load(std::memory_order_relaxed);
}

void watch_for(Reason reason, bool on) {
  static std::mutex mutex;
  const std::lock_guard<std::mutex> lock(mutex);
  const auto bit = static_cast<unsigned>(reason);
  const unsigned before = watched_for();
  const unsigned after = on ? before | bit : before & ~bit;
  reasons.store(after);
  if ((before != 0) != (after != 0)) {
    if (Driver* const driver = active_driver_or_null()) {
      driver->watch_launches(after != 0 ? &watch() : nullptr);
    }
    set_calls_watched(after != 0);
  }
}

void on_cpu_kernel(
    c10::DeviceIndex device, const std::string& overload, Ticks begin) {
  const unsigned who = watched_for();
  const Ticks end = c10::getApproximateTime();
  if (has(who, Reason::kMeter)) {
    meter_ticks(device, begin, end);
  }
  if (!has(who, Reason::kRecording) || !host_code_is_native()) {
    return;
  }
  constexpr std::string_view kNamespace = "aten::";
  std::string_view name = overload;
  if (name.starts_with(kNamespace)) {
    name.remove_prefix(kNamespace.size());
  }
  Record record;
  record.origin = current_origin();
  record.stream = current_stream_handle(device);
  record.name = lasting("cpu::" + std::string(name));
  record.label = lasting(overload);
  record.launched = begin;
  record.begin = begin;
  record.end = end;
  place(record);
  record.line = WorkTrace::instance().line_of_launch();
  record.returned = c10::getApproximateTime();
  WorkTrace::instance().add(std::move(record));
}

Asked ask_for_collective_slowly() {
  if (!has(watched_for(), Reason::kRecording)) {
    return {};
  }
  return {
      true,
      ThreadLog::mine().thread(),
      current_origin(),
      c10::getApproximateTime(),
      WorkTrace::instance().line_of_launch()};
}

void on_collective(const Asked& asked, const Collective& collective) {
  if (!asked.heard) {
    return;
  }
  const std::string& text = collective.text;
  Record record;
  record.kind = Record::kCollective;
  record.origin = asked.origin;
  record.device = collective.device;
  record.lane = kCollectiveLane;
  record.thread = asked.thread;
  record.name = lasting("hccl::" + text.substr(0, text.find(' ')));
  record.label = lasting(text);
  record.line = asked.line;
  record.bytes = collective.bytes;
  record.launched = asked.at;
  record.returned = asked.at;
  record.begin = collective.begin;
  record.met = collective.met;
  record.end = c10::getApproximateTime();
  WorkTrace::instance().add(std::move(record));
}

}  // namespace npu::profiler
