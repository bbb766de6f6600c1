// SPDX-License-Identifier: Apache-2.0
// Everything this plugin registers with PyTorch's dispatcher at load time.
#include "aten/ops/install.h"

#include <vector>

#include "aten/ladder/ladder.h"
#include "aten/ops/composed.h"
#include "aten/ops/register.h"

namespace npu {

void install_operators() {
  static const bool installed = [] {
    std::vector<ladder::UnboxedRows> rows = native_rows();
    rows.push_back(composed_rows());
    ladder::install(rows);
    return true;
  }();
  (void)installed;
}

}  // namespace npu
