// SPDX-License-Identifier: Apache-2.0
// Cast: runs chosen operators in another dtype.
#pragma once

#include <c10/core/ScalarType.h>

#include "tools/counted.h"

namespace optools {

class Cast : public Counted {
 public:
  explicit Cast(std::vector<std::pair<c10::ScalarType, c10::ScalarType>> map)
      : map_(std::move(map)) {}

  void around(Call& call, Chain& chain) override;

 private:
  struct Changed;
  c10::ScalarType target(c10::ScalarType from) const;
  const char* obstacle(const Call& call) const;
  void change_inputs(Call& call, Changed& changed) const;
  void change_back(Call& call, Changed& changed) const;

  std::vector<std::pair<c10::ScalarType, c10::ScalarType>> map_;
};

}  // namespace optools
