// SPDX-License-Identifier: Apache-2.0
// Counting, per operator, the calls a tool acted on and those it let pass,
// with the reason.
#pragma once

#include <map>

#include "core/tool.h"

namespace optools {

struct CallShare {
  uint64_t calls = 0;
  int64_t ns = 0;  // the host's time in them, where that is taken

  void add(const CallShare& more) {
    calls += more.calls;
    ns += more.ns;
  }
};

// What one thread counts: no lock, no text. The empty reason is "acted on".
class ReasonCounts {
 public:
  using Sum = std::map<std::pair<uint32_t, std::string>, CallShare>;
  // `reason` is a literal.
  void add(uint32_t op, const char* reason, int64_t ns = 0) {
    counts_[{op, reason}].add({1, ns});
  }
  void add_to(Sum& sum) const {
    for (const auto& [key, share] : counts_) {
      sum[{key.first, key.second}].add(share);
    }
  }

 private:
  std::map<std::pair<uint32_t, const char*>, CallShare> counts_;
};

class Counted : public Tool {
 public:
  using Counts = ReasonCounts::Sum;
  Counts counts() const {
    Counts sum;
    for (auto* each : quiet_locals()) {
      static_cast<Local*>(each)->counts.add_to(sum);
    }
    return sum;
  }

 protected:
  struct Local : ToolLocal {
    using ToolLocal::ToolLocal;
    ReasonCounts counts;
  };
  // `reason` is a literal.
  void count(Call& call, const char* reason) {
    local<Local>(call).counts.add(call.op.index, reason);
  }
};

}  // namespace optools
