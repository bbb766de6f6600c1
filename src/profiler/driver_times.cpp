// SPDX-License-Identifier: Apache-2.0
// When queued work ran, as the driver itself recorded it.
#include "profiler/driver_times.h"

#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>

#include "driver/registry.h"
#include "driver/services.h"
#include "profiler/thread_log.h"
#include "runtime/stream.h"

namespace npu::profiler {
namespace {

constexpr std::uint32_t kKinds =
    1u << NPU_RECORD_KERNEL | 1u << NPU_RECORD_COPY | 1u << NPU_RECORD_SET;

using Taken = std::vector<npu_profile_record>;

void take_records(
    void* context, const npu_profile_record* records, std::uint32_t n) {
  auto& taken = *static_cast<Taken*>(context);
  taken.insert(taken.end(), records, records + n);
}

// Copies have no number of ours: the first of a stream and sort is the first
// one launched there.
using Queue = std::pair<std::uint64_t, std::uint32_t>;

std::uint32_t driver_kind(const Record& record) {
  switch (record.kind) {
    case Record::kKernel:
      return NPU_RECORD_KERNEL;
    case Record::kSet:
      return NPU_RECORD_SET;
    default:
      return NPU_RECORD_COPY;
  }
}

// By events: a synchronize would be told of the user's errors in his place.
void wait_for_work(const std::vector<Record>& records) {
  std::set<npu_stream> streams;
  for (const Record& record : records) {
    if (record.timing == Record::kDriver) {
      streams.insert(record.stream);
    }
  }
  const npu_event_table& events = active_driver().event();
  for (const npu_stream stream : streams) {
    const auto known = find_stream(stream);
    npu_event event = nullptr;
    if (known &&
        events.create(driver_device(known->device_index()), 0, &event) ==
            NPU_OK) {
      if (events.record(event, stream) == NPU_OK) {
        events.synchronize(event);
      }
      events.destroy(event);
    }
  }
}

// Records of ours that wait for the driver's, found by what those say.
class Waiting {
 public:
  explicit Waiting(std::vector<Record>& records) {
    for (Record& record : records) {
      if (record.timing != Record::kDriver) {
        continue;
      }
      numbered_[record.number] = &record;
      if (record.kind != Record::kKernel) {
        const auto stream = reinterpret_cast<std::uintptr_t>(record.stream);
        queues_[{stream, driver_kind(record)}].push_back(&record);
      }
    }
  }
  Record* find(const npu_profile_record& theirs) {
    if (theirs.correlation != 0) {
      const auto found = numbered_.find(theirs.correlation);
      return found == numbered_.end() ? nullptr : found->second;
    }
    auto& queue = queues_[{theirs.stream, theirs.kind}];
    if (queue.empty()) {
      return nullptr;
    }
    Record* const first = queue.front();
    queue.pop_front();
    return first;
  }

 private:
  std::unordered_map<std::uint64_t, Record*> numbered_;
  std::map<Queue, std::deque<Record*>> queues_;
};

}  // namespace

bool DriverTimes::read_clock(c10::DeviceIndex device, Clock& clock) const {
  std::int64_t monotonic = 0;
  if (driver_->clocks(driver_device(device), &clock.device_ns, &monotonic) !=
      NPU_OK) {
    return false;
  }
  const std::int64_t since_boot = c10::getTime(/*allow_monotonic=*/true);
  clock.host_ns = c10::getTime() - since_boot + monotonic;
  return true;
}

bool DriverTimes::start_device(c10::DeviceIndex device) {
  Clock& clock = clocks_[static_cast<std::size_t>(device)];
  clock.started = read_clock(device, clock) &&
                  driver_->start(driver_device(device), kKinds) == NPU_OK;
  return clock.started;
}

bool DriverTimes::start() {
  driver_ = active_driver().interface<npu_profiler>();
  if (driver_ == nullptr) {
    return false;
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  clocks_.fill({});
  for (c10::DeviceIndex device = 0; device < device_count(); ++device) {
    if (device_is_open(device) && !start_device(device)) {
      log(NPU_LOG_WARNING,
          "npu: profiler: the driver's profiler/1 does not start on npu:" +
              std::to_string(device) + ": " + host_services()->last_error() +
              ". Its events give the times.");
      return false;
    }
  }
  return true;
}

bool DriverTimes::covers(c10::DeviceIndex device) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return device >= 0 && (clocks_[static_cast<std::size_t>(device)].started ||
                         start_device(device));
}

std::uint64_t DriverTimes::finish(std::vector<Record>& records) {
  std::uint64_t all_lost = 0;
  wait_for_work(records);
  Waiting waiting(records);
  std::vector<Record> further;
  for (c10::DeviceIndex device = 0; device < device_count(); ++device) {
    const Clock first = clocks_[static_cast<std::size_t>(device)];
    if (!first.started) {
      continue;
    }
    const npu_device number = driver_device(device);
    driver_->stop(number);
    Clock last;
    const bool both = read_clock(device, last);
    const double passed = static_cast<double>(last.device_ns - first.device_ns);
    const double drift =
        both && passed > 0
            ? static_cast<double>(last.host_ns - first.host_ns) / passed
            : 1;
    const auto host_time = [&](std::int64_t ns) {
      return first.host_ns +
             static_cast<std::int64_t>(
                 static_cast<double>(ns - first.device_ns) * drift);
    };
    Taken taken;
    std::uint64_t lost = 0;
    driver_->flush(number, &take_records, &taken, &lost);
    all_lost += lost;
    std::ranges::sort(taken, {}, &npu_profile_record::begin_ns);
    for (const npu_profile_record& theirs : taken) {
      Record* ours = waiting.find(theirs);
      if (ours == nullptr) {
        continue;
      }
      if (ours->timing == Record::kKnown) {
        ours = &further.emplace_back(*ours);  // the launch was several kernels
      }
      ours->begin_ns = host_time(theirs.begin_ns);
      ours->end_ns = std::max(ours->begin_ns, host_time(theirs.end_ns));
      ours->bytes = theirs.bytes != 0 ? theirs.bytes : ours->bytes;
      ours->timing = Record::kKnown;
      if (theirs.kind == NPU_RECORD_KERNEL && theirs.name != nullptr) {
        ours->name = lasting(theirs.name);
      }
    }
  }
  for (Record& record : records) {
    if (record.timing == Record::kDriver) {
      record.timing = Record::kLost;
    }
  }
  records.insert(records.end(), further.begin(), further.end());
  return all_lost;
}

}  // namespace npu::profiler
