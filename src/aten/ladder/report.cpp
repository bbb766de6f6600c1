// SPDX-License-Identifier: Apache-2.0
// Counters as rows.
#include "aten/ladder/report.h"

#include <algorithm>
#include <mutex>
#include <unordered_map>

#include "aten/core/site.h"
#include "aten/ladder/ticks.h"
#include "aten/profile/policy.h"
#include "aten/twin/entry.h"
#include "driver/status.h"
#include "runtime/capabilities.h"

namespace npu::ladder {
namespace {

// "dtype not supported; strides not supported".
std::string reasons_text(std::uint32_t reasons) {
  std::string text;
  for (npu_reason reason = 0; reason < NPU_REASON_COUNT; ++reason) {
    if ((reasons >> reason & 1) != 0) {
      text += (text.empty() ? "" : "; ") + std::string(reason_text(reason));
    }
  }
  return text;
}

// Calls the driver took after copies of their operands or in parts, and frames
// that draw random numbers on the embedded host driver.
void add_steps(std::vector<Row>& rows) {
  for_each_site([&](Site& site) {
    for (const Site::Step& step : site.steps()) {
      Row row;
      row.overload = row.reported = site.overload();
      // Run by the CPU: on the same bytes, or on copies.
      const int embedded = step.bytes == 0 ? 4 : 5;
      row.rung = step.rung == Site::kEmbedded ? embedded : step.rung;
      row.reason = reasons_text(step.reasons);
      row.calls = step.calls;
      row.bytes = step.bytes;
      row.seconds = step.seconds;
      rows.push_back(std::move(row));
    }
  });
}

// Few, so they are kept apart from the counters of every operator.
class Refused {
 public:
  void note(const twin::Entry& entry) {
    const std::lock_guard<std::mutex> lock(mutex_);
    ++calls_[&entry];
  }
  std::uint64_t of(const twin::Entry& entry) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = calls_.find(&entry);
    return found == calls_.end() ? 0 : found->second;
  }
  void clear() {
    const std::lock_guard<std::mutex> lock(mutex_);
    calls_.clear();
  }

 private:
  std::mutex mutex_;
  std::unordered_map<const twin::Entry*, std::uint64_t> calls_;
};

Refused& refused() {
  static auto* const all = new Refused;
  return *all;
}

}  // namespace

void note_refused(const twin::Entry& entry) {
  refused().note(entry);
}

std::vector<Row> report_rows() {
  std::vector<Row> rows;
  const double seconds = seconds_per_tick();
  const bool native = twin_is_native();
  twin::for_each_entry([&](twin::Entry& entry) {
    Row row;
    row.calls = entry.counters.calls.load();
    row.refused = refused().of(entry);
    if (row.calls == 0 && row.refused == 0) {
      return;
    }
    row.wide = entry.counters.wide.load();
    row.overload = entry.label;
    row.rung = entry.counters.rung.load();
    row.bytes = entry.counters.bytes.load();
    row.seconds = static_cast<double>(entry.counters.ticks.load()) * seconds;
    {
      const std::lock_guard<std::mutex> lock(entry.mutex);
      row.reported = entry.reported;
      row.native = native && row.rung == 4 && !entry.falls_back;
      row.call_site = entry.call_site;
    }
    row.reason =
        row.calls == 0 ? "refused by " + std::string(profile::forbidden_by())
        : row.native   ? std::string("PyTorch's ") +
                           (platform() == Platform::kCpu ? "CPU" : "CUDA") +
                           " kernel is this device's own"
                     : reason_text(entry.counters.reason.load());
    rows.push_back(std::move(row));
  });
  add_steps(rows);
  std::sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) {
    return a.seconds > b.seconds;
  });
  return rows;
}

void report_reset() {
  refused().clear();
  twin::for_each_entry([](twin::Entry& entry) {
    entry.counters.calls = 0;
    entry.counters.wide = 0;
    entry.counters.bytes = 0;
    entry.counters.ticks = 0;
    const std::lock_guard<std::mutex> lock(entry.mutex);
    entry.call_site.clear();
    // So that the next call leaves its call site.
    entry.policy_checked.store(false);
  });
  for_each_site([](Site& site) { site.reset(); });
}

}  // namespace npu::ladder
