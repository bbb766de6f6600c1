// SPDX-License-Identifier: Apache-2.0
// PyTorch's structured kernels with outputs of ours: see Note [Direct].
#pragma once

#include "aten/ops/structured.h"

namespace npu {

// A kernel of one output: its meta, which sets the output, and the kernel.
template <class Native, class... Args>
void run_structured(Outputs& out, const Args&... args) {
  StructuredOp<Native, Outputs&> op(out);
  op.meta(args...);
  op.impl(args..., out.at(0));
}

}  // namespace npu
