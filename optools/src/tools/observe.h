// SPDX-License-Identifier: Apache-2.0
// Observe: what was called, on what, from where.
#pragma once

#include <map>

#include "core/records.h"

namespace optools {

class Observe : public Tool {
 public:
  // `limit_bytes` of records per thread; older ones make room. 0: counts only.
  explicit Observe(size_t limit_bytes) : limit_(limit_bytes) {}

  void around(Call& call, Chain& chain) override;

  using Counts = std::map<std::pair<uint32_t, uint8_t>, uint64_t>;
  Counts counts() const;  // by operator and phase
  uint64_t dropped() const;
  void each(const std::function<void(const Record&)>& body) const;

 private:
  struct Local : ToolLocal {
    using ToolLocal::ToolLocal;
    std::vector<std::array<uint64_t, 3>> counts;
    std::unique_ptr<RecordLog> log;
  };
  size_t limit_;
};

}  // namespace optools
