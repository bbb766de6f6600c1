// SPDX-License-Identifier: Apache-2.0
// How long each device was busy, counted while `opennpu top` asks.
#include "profiler/meter.h"

#include <array>
#include <atomic>
#include <memory>

#include "driver/registry.h"
#include "profiler/work_trace.h"
#include "runtime/device.h"

namespace npu::profiler {
namespace {

struct Busy {
  std::atomic<std::uint64_t> ticks{0};
  std::atomic<std::uint64_t> pieces{0};
  std::atomic<std::uint64_t> under_way{0};
};
std::array<Busy, kMaxDevices> busy;

bool is_device(c10::DeviceIndex device) {
  return device >= 0 && device < kMaxDevices;
}

void count_under_way(c10::DeviceIndex device, std::uint64_t change) noexcept {
  if (is_device(device)) {
    busy[static_cast<std::size_t>(device)].under_way.fetch_add(
        change, std::memory_order_relaxed);
  }
}
constexpr auto kOneLess = static_cast<std::uint64_t>(-1);

// Queued round a piece of work. Functions on the stream, not events: asking an
// event might tell us of an error that is the user's to know.
struct Span {
  c10::DeviceIndex device = -1;
  Ticks begin = 0;
};

void begin_span(void* context) {
  static_cast<Span*>(context)->begin = c10::getApproximateTime();
}

void end_span(void* context) {
  const std::unique_ptr<Span> span(static_cast<Span*>(context));
  meter_ticks(span->device, span->begin, c10::getApproximateTime());
  count_under_way(span->device, kOneLess);
}

}  // namespace

Metered metered(c10::DeviceIndex device) noexcept {
  const Busy& mine = busy[static_cast<std::size_t>(device)];
  return {mine.ticks.load(), mine.pieces.load(), mine.under_way.load()};
}

void meter_ticks(c10::DeviceIndex device, Ticks begin, Ticks end) noexcept {
  if (is_device(device) && end >= begin) {
    Busy& mine = busy[static_cast<std::size_t>(device)];
    mine.ticks.fetch_add(end - begin, std::memory_order_relaxed);
    mine.pieces.fetch_add(1, std::memory_order_relaxed);
  }
}

npu_status meter_launch(
    const Launch& launch, npu_status (*give)(const Launch&)) noexcept {
  Record where;
  where.stream = launch.stream;
  place(where);
  const Driver& driver = active_driver();
  count_under_way(where.device, 1);
  if (!driver.queues_work()) {
    const Ticks begin = c10::getApproximateTime();
    const npu_status status = give(launch);
    meter_ticks(where.device, begin, c10::getApproximateTime());
    count_under_way(where.device, kOneLess);
    return status;
  }
  auto span = std::make_unique<Span>(Span{where.device, 0});
  const auto host_call = driver.stream().host_call;
  const bool begun =
      host_call(launch.stream, &begin_span, span.get()) == NPU_OK;
  const npu_status status = give(launch);
  if (begun) {
    // end_span frees it. If the driver does not take that, it is lost: the
    // first function may still be about to run.
    if (host_call(launch.stream, &end_span, span.release()) == NPU_OK) {
      return status;
    }
  }
  count_under_way(where.device, kOneLess);
  return status;
}

}  // namespace npu::profiler
