// SPDX-License-Identifier: Apache-2.0
// Counters of the CPU rungs.
#include "aten/ladder/count.h"

#include "aten/ladder/ticks.h"
#include "runtime/cpu_work.h"

namespace npu::ladder {
namespace {

// The clock is read at every call while there are few, then at one in 16 that
// stands for all of them: two reads cost as much as a small operator's checks.
constexpr std::uint64_t kTimedCalls = 64;
constexpr std::uint64_t kSampled = 16;
constexpr auto kRelaxed = std::memory_order_relaxed;

}  // namespace

std::uint64_t start_of_call(const Entry& entry) {
  const std::uint64_t calls = entry.counters.calls.load(kRelaxed);
  return calls < kTimedCalls || calls % kSampled == 0 ? read_ticks() : 0;
}

void count_call(
    Entry& entry,
    npu_reason reason,
    int rung,
    std::uint64_t bytes,
    std::uint64_t start) {
  note_cpu_work(entry.label.c_str(), reason);
  twin::Counters& counters = entry.counters;
  const std::uint64_t before = counters.calls.fetch_add(1, kRelaxed);
  counters.bytes.fetch_add(bytes, kRelaxed);
  if (start != 0) {
    const std::uint64_t stands_for = before < kTimedCalls ? 1 : kSampled;
    counters.ticks.fetch_add((read_ticks() - start) * stands_for, kRelaxed);
  }
  counters.reason.store(reason, kRelaxed);
  counters.rung.store(rung, kRelaxed);
}

}  // namespace npu::ladder
