// SPDX-License-Identifier: Apache-2.0
// When queued work ran, by events of the driver.
#include "profiler/event_times.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "driver/registry.h"
#include "driver/services.h"

namespace npu::profiler {
namespace {

constexpr double kNsPerMs = 1e6;

const npu_event_table& events() {
  return active_driver().event();
}

// The host's time at which `event` happened on an idle stream: between the two
// moments round it, and the closer they are the better.
std::optional<std::int64_t> moment_of(npu_event event, npu_stream stream) {
  constexpr int kTries = 8;
  constexpr std::int64_t kCloseNs = 30'000;
  std::int64_t ns = 0;
  for (int i = 0; i < kTries; ++i) {
    const std::int64_t before = c10::getTime();
    if (events().record(event, stream) != NPU_OK ||
        events().synchronize(event) != NPU_OK) {
      return std::nullopt;
    }
    const std::int64_t after = c10::getTime();
    ns = before + (after - before) / 2;
    if (after - before < kCloseNs) {
      break;
    }
  }
  return ns;
}

std::optional<double> ms_between(npu_event from, npu_event to) {
  double ms = 0;
  return events().elapsed_ms(from, to, &ms) == NPU_OK ? std::optional(ms)
                                                      : std::nullopt;
}

}  // namespace

void EventTimes::start() {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (c10::DeviceIndex device = 0; device < device_count(); ++device) {
    Anchor& anchor = anchors_[static_cast<std::size_t>(device)];
    anchor.first_ns = 0;
    if (device_is_open(device)) {
      take_anchor(device);
    }
  }
}

bool EventTimes::take_anchor(c10::DeviceIndex device) {
  Anchor& anchor = anchors_[static_cast<std::size_t>(device)];
  anchor.drift = 1;
  const npu_device number = driver_device(device);
  if (anchor.stream == nullptr &&
      active_driver().stream().create(number, 0, &anchor.stream) != NPU_OK) {
    anchor.stream = nullptr;
    return false;
  }
  if (anchor.first == nullptr &&
      events().create(number, NPU_EVENT_TIMING, &anchor.first) != NPU_OK) {
    anchor.first = nullptr;
    return false;
  }
  anchor.first_ns = moment_of(anchor.first, anchor.stream).value_or(0);
  return anchor.first_ns != 0;
}

bool EventTimes::has_anchor(c10::DeviceIndex device) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return anchors_[static_cast<std::size_t>(device)].first_ns != 0 ||
         take_anchor(device);
}

// Called with the mutex held.
void EventTimes::measure_drift(c10::DeviceIndex device) {
  constexpr double kMost = 0.001;  // more is a bad measurement
  Anchor& anchor = anchors_[static_cast<std::size_t>(device)];
  npu_event last = nullptr;
  if (anchor.first_ns == 0 ||
      events().create(driver_device(device), NPU_EVENT_TIMING, &last) !=
          NPU_OK) {
    return;
  }
  const auto ns = moment_of(last, anchor.stream);
  const auto ms = ms_between(anchor.first, last);
  if (ns && ms && *ms > 1000) {
    const double drift =
        static_cast<double>(*ns - anchor.first_ns) / (*ms * kNsPerMs);
    if (std::abs(drift - 1) < kMost) {
      anchor.drift = drift;
    }
  }
  events().destroy(last);
}

npu_event EventTimes::take_event(c10::DeviceIndex device) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    auto& free = free_[static_cast<std::size_t>(device)];
    if (!free.empty()) {
      const npu_event event = free.back();
      free.pop_back();
      return event;
    }
  }
  npu_event made = nullptr;
  return events().create(driver_device(device), NPU_EVENT_TIMING, &made) ==
                 NPU_OK
             ? made
             : nullptr;
}

void EventTimes::give_back(c10::DeviceIndex device, npu_event event) {
  if (event != nullptr) {
    const std::lock_guard<std::mutex> lock(mutex_);
    free_[static_cast<std::size_t>(device)].push_back(event);
  }
}

void EventTimes::before(Record& record) {
  record.timing = Record::kLost;
  if (record.device < 0 || !has_anchor(record.device)) {
    return;
  }
  record.before = take_event(record.device);
  record.after = take_event(record.device);
  if (record.before != nullptr && record.after != nullptr &&
      events().record(record.before, record.stream) == NPU_OK) {
    record.timing = Record::kEvents;
  }
}

void EventTimes::after(Record& record) {
  if (record.timing == Record::kEvents &&
      events().record(record.after, record.stream) != NPU_OK) {
    record.timing = Record::kLost;
  }
}

// The work is done.
bool EventTimes::read(Record& record) {
  const Anchor& anchor = anchors_[static_cast<std::size_t>(record.device)];
  const auto begin = ms_between(anchor.first, record.before);
  const auto took = ms_between(record.before, record.after);
  if (!begin || !took) {
    return false;
  }
  record.begin_ns = std::llround(*begin * kNsPerMs);
  record.end_ns = record.begin_ns +
                  std::max<std::int64_t>(0, std::llround(*took * kNsPerMs));
  record.by_events = true;
  return true;
}

void EventTimes::to_host_time(Record& record) const {
  const Anchor& anchor = anchors_[static_cast<std::size_t>(record.device)];
  const auto host = [&](std::int64_t ns) {
    return anchor.first_ns +
           std::llround(static_cast<double>(ns) * anchor.drift);
  };
  record.begin_ns = host(record.begin_ns);
  record.end_ns = host(record.end_ns);
}

bool EventTimes::resolve(Record& record) {
  if (record.timing == Record::kEvents) {
    const npu_status status = events().query(record.after);
    if (status == NPU_NOT_READY) {
      return false;
    }
    record.timing =
        status == NPU_OK && read(record) ? Record::kKnown : Record::kLost;
  }
  give_back(record.device, std::exchange(record.before, nullptr));
  give_back(record.device, std::exchange(record.after, nullptr));
  return true;
}

void EventTimes::finish(std::vector<Record>& records) {
  for (Record& record : records) {
    if (record.timing == Record::kEvents &&
        events().synchronize(record.after) != NPU_OK) {
      log(NPU_LOG_ERROR,
          std::string("npu: profiler: queued work failed: ") +
              host_services()->last_error());
    }
  }
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (c10::DeviceIndex device = 0; device < device_count(); ++device) {
      measure_drift(device);
    }
  }
  // What the host knows is certain: nothing runs before it was launched. How
  // far an anchor is off shows in what would.
  std::array<std::int64_t, kMaxDevices> early{};
  for (Record& record : records) {
    if (!resolve(record)) {
      record.timing = Record::kLost;
    }
    if (record.by_events) {
      to_host_time(record);
      auto& most = early[static_cast<std::size_t>(record.device)];
      most = std::max(most, record.launched_ns - record.begin_ns);
    }
  }
  for (Record& record : records) {
    if (record.by_events) {
      const auto shift = early[static_cast<std::size_t>(record.device)];
      record.begin_ns += shift;
      record.end_ns += shift;
    }
  }
}

}  // namespace npu::profiler
