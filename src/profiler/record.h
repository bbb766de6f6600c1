// SPDX-License-Identifier: Apache-2.0
// One piece of device work: where it came from, where and when it ran.
#pragma once

#include <c10/core/Device.h>
#include <c10/util/ApproximateClock.h>

#include <cstdint>
#include <string>

#include "driver/launch_watch.h"
#include "npu/driver.h"
#include "profiler/origin.h"

namespace npu::profiler {

// The clock of the host side: what PyTorch takes an operator's times from.
using Ticks = c10::approx_time_t;

// Lane of a device's collectives; lanes of streams are stream ids, which are
// smaller.
inline constexpr std::int32_t kCollectiveLane = 1000;

struct Record {
  // What a launch says it is, or a collective.
  enum Kind : std::uint8_t {
    kKernel = Launch::kKernel,
    kToDevice = Launch::kToDevice,
    kToHost = Launch::kToHost,
    kOnDevice = Launch::kOnDevice,
    kPeer = Launch::kPeer,
    kSet = Launch::kSet,
    kCollective,
    kWait,  // the host waited for a device; no work of the device
  };
  // Who knows when it ran.
  enum Timing : std::uint8_t {
    kTicks,   // host code ran it: begin and end are ticks
    kEvents,  // two events of the driver
    kDriver,  // profiler/1
    kKnown,   // begin_ns and end_ns are filled
    kLost,    // they are unknown
  };

  Kind kind = kKernel;
  Timing timing = kTicks;
  c10::DeviceIndex device = -1;
  std::int32_t lane = -1;
  std::int32_t thread = 0;   // that launched it, as the system numbers it
  std::uint64_t number = 0;  // npu_call.correlation, one per launch
  Origin origin;
  npu_stream stream = nullptr;         // nullptr: device and lane are given
  const std::string* name = nullptr;   // lives as long as the process
  const std::string* label = nullptr;  // the operator; may be nullptr
  const std::string* line = nullptr;   // of the user's program; may be nullptr
  std::uint64_t bytes = 0;
  Ticks launched = 0;  // on the host
  Ticks returned = 0;
  Ticks begin = 0;
  Ticks met = 0;  // of a collective: when every rank had come
  Ticks end = 0;
  npu_event before = nullptr;
  npu_event after = nullptr;
  bool by_events = false;  // begin_ns and end_ns count from the anchor so far
  // Since the epoch; filled when the recording ends.
  std::int64_t launched_ns = 0;
  std::int64_t returned_ns = 0;
  std::int64_t begin_ns = 0;
  std::int64_t met_ns = 0;
  std::int64_t end_ns = 0;
};

}  // namespace npu::profiler
