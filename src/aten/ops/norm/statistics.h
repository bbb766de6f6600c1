// SPDX-License-Identifier: Apache-2.0
// Saved statistics of norms, on their way to a kernel of PyTorch.
#pragma once

#include "aten/ops/operands.h"
#include "aten/twin/twin.h"

namespace npu::ops {

// PyTorch's CPU functions take them in the dtype they would have saved,
// `cpu_type`; kernels of other platforms take them as results have them.
inline OptTensor for_kernel(
    const OptTensor& statistics, c10::ScalarType cpu_type) {
  const at::Tensor& given = or_undefined(statistics);
  return given.defined() && twin::uses_cpu_functions()
             ? OptTensor(given.to(cpu_type))
             : statistics;
}

}  // namespace npu::ops
