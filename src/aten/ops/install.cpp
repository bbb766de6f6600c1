// SPDX-License-Identifier: Apache-2.0
// Everything this plugin registers with PyTorch's dispatcher at load time.
#include "aten/ops/install.h"

#include "aten/ladder/ladder.h"
#include "aten/ops/register.h"

namespace npu {

void install_operators() {
  static const bool installed = [] {
    ladder::install(native_rows());
    return true;
  }();
  (void)installed;
}

}  // namespace npu
