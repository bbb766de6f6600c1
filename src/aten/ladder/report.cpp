// SPDX-License-Identifier: Apache-2.0
// Counters as rows.
#include "aten/ladder/report.h"

#include <algorithm>

#include "aten/core/site.h"
#include "aten/ladder/entry.h"
#include "aten/ladder/ticks.h"
#include "driver/registry.h"
#include "driver/status.h"

namespace npu::ladder {
namespace {

bool device_is_cpu() {
  const Driver* const driver = active_driver_or_null();
  return driver != nullptr && driver->device_is_cpu();
}

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

}  // namespace

std::vector<Row> report_rows() {
  std::vector<Row> rows;
  const double seconds = seconds_per_tick();
  const bool host = device_is_cpu();
  for_each_entry([&](Entry& entry) {
    Row row;
    row.calls = entry.counters.calls.load();
    if (row.calls == 0) {
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
      row.native = host && row.rung == 4 && !entry.falls_back;
      row.call_site = entry.call_site;
    }
    row.reason = row.native ? "PyTorch's CPU kernel is this device's own"
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
  for_each_entry([](Entry& entry) {
    entry.counters.calls = 0;
    entry.counters.wide = 0;
    entry.counters.bytes = 0;
    entry.counters.ticks = 0;
    const std::lock_guard<std::mutex> lock(entry.mutex);
    entry.call_site.clear();
    // So that the next call leaves its call site.
    entry.settled.store(false);
  });
  for_each_site([](Site& site) { site.reset(); });
}

}  // namespace npu::ladder
