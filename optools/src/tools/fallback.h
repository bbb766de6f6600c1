// SPDX-License-Identifier: Apache-2.0
// Fall back: runs chosen operators on the CPU, on copies.
#pragma once

#include "tools/counted.h"

namespace optools {

class Fallback : public Counted, private Executor {
 public:
  void around(Call& call, Chain& chain) override;
  void finish() override;

 private:
  void execute(Call& call) override;
};

}  // namespace optools
