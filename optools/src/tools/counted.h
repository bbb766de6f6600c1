// SPDX-License-Identifier: Apache-2.0
// A tool that counts, per operator, the calls it acted on and those it let
// pass, with the reason.
#pragma once

#include <map>

#include "core/tool.h"

namespace optools {

class Counted : public Tool {
 public:
  // Reason -> calls; the empty reason is "acted on".
  using Counts = std::map<std::pair<uint32_t, std::string>, uint64_t>;
  Counts counts() const {
    Counts sum;
    for (auto* each : quiet_locals()) {
      for (const auto& [key, count] : static_cast<Local*>(each)->counts) {
        sum[{key.first, key.second}] += count;
      }
    }
    return sum;
  }

 protected:
  struct Local : ToolLocal {
    using ToolLocal::ToolLocal;
    std::map<std::pair<uint32_t, const char*>, uint64_t> counts;
  };
  // `reason` is a literal.
  void count(Call& call, const char* reason) {
    ++local<Local>(call).counts[{call.op.index, reason}];
  }
};

}  // namespace optools
