// SPDX-License-Identifier: Apache-2.0
// How long a tick is.
#include "aten/ladder/ticks.h"

#include <thread>

namespace npu::ladder {
namespace {

using Clock = std::chrono::steady_clock;

struct Origin {
  Clock::time_point time = Clock::now();
  std::uint64_t ticks = read_ticks();
};
const Origin origin;

}  // namespace

double seconds_per_tick() {
  constexpr std::chrono::milliseconds kEnough(5);
  if (Clock::now() - origin.time < kEnough) {
    std::this_thread::sleep_for(kEnough);
  }
  const std::chrono::duration<double> passed = Clock::now() - origin.time;
  const std::uint64_t ticks = read_ticks() - origin.ticks;
  return ticks == 0 ? 0.0 : passed.count() / static_cast<double>(ticks);
}

}  // namespace npu::ladder
