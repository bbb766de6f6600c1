// SPDX-License-Identifier: Apache-2.0
// A kernel a tap stands in front of.
#pragma once

#include "core/torch_compat.h"

namespace optools {

// Called boxed through the first form, which says so when its library is gone;
// with types through the second.
struct SavedKernel : c10::SafeKernelFunction {
  SavedKernel(const c10::OperatorHandle& handle, c10::DispatchKey key)
      : SafeKernelFunction(handle.getComputedKernelForDispatchKey(key)),
        in_table(table_kernel(handle, key)) {}
  c10::KernelFunction in_table;
};

}  // namespace optools
