// SPDX-License-Identifier: Apache-2.0
// Observe: what was called, on what, from where.
#include "tools/observe.h"

namespace optools {

void Observe::around(Call& call, Chain& chain) {
  Local* mine = nullptr;
  const bool begun = attempt([&] {
    mine = &local<Local>(call);
    if (call.op.index >= mine->counts.size()) {
      mine->counts.resize(call.op.index + 256);
    }
    ++mine->counts[call.op.index][static_cast<size_t>(call.phase)];
    if (limit_ != 0) {
      if (!mine->log) {
        mine->log = std::make_unique<RecordLog>(limit_);
      }
      mine->log->begin(call);
    }
  });
  if (!begun || limit_ == 0) {
    chain.run();
    return;
  }
  try {
    chain.run();
  } catch (...) {
    mine->log->raised();
    throw;
  }
  attempt([&] { mine->log->add_outputs(call); });
}

Observe::Counts Observe::counts() const {
  Counts sum;
  for (auto* each : quiet_locals()) {
    const auto& counts = static_cast<Local*>(each)->counts;
    for (uint32_t op = 0; op < counts.size(); ++op) {
      for (uint8_t phase = 0; phase < 3; ++phase) {
        if (counts[op][phase] != 0) {
          sum[{op, phase}] += counts[op][phase];
        }
      }
    }
  }
  return sum;
}

uint64_t Observe::dropped() const {
  uint64_t sum = 0;
  for (auto* each : quiet_locals()) {
    const auto& log = static_cast<Local*>(each)->log;
    sum += log ? log->dropped() : 0;
  }
  return sum;
}

void Observe::each(const std::function<void(const Record&)>& body) const {
  for (auto* each : quiet_locals()) {
    if (const auto& log = static_cast<Local*>(each)->log) {
      log->each(body);
    }
  }
}

}  // namespace optools
