// SPDX-License-Identifier: Apache-2.0
// CUDA's words for a compiler of the host: a program's source runs as a loop
// over blocks of one thread. For tests.
#pragma once

#include <cmath>

#define __global__
#define __device__
#define __shared__ static thread_local
#define __grid_constant__
#define __launch_bounds__(...)

namespace npu::jit {
struct Place {
  unsigned x = 0, y = 0, z = 0;
};
struct Extent {
  unsigned x = 1, y = 1, z = 1;
};
}  // namespace npu::jit
inline thread_local npu::jit::Place blockIdx, threadIdx;
inline thread_local npu::jit::Extent blockDim, gridDim;
