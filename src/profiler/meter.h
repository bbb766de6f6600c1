// SPDX-License-Identifier: Apache-2.0
// How long each device was busy, counted while `opennpu top` asks.
#pragma once

#include <cstdint>

#include "driver/launch_watch.h"
#include "profiler/record.h"

namespace npu::profiler {

struct Metered {
  std::uint64_t ticks = 0;  // busy, of the host's clock
  std::uint64_t pieces = 0;
  std::uint64_t under_way = 0;  // queued or running
};
Metered metered(c10::DeviceIndex device) noexcept;

// Gives the launch on through `give` and counts how long it keeps its device.
npu_status meter_launch(
    const Launch& launch, npu_status (*give)(const Launch&)) noexcept;
void meter_ticks(c10::DeviceIndex device, Ticks begin, Ticks end) noexcept;

}  // namespace npu::profiler
