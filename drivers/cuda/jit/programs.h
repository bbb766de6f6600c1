// SPDX-License-Identifier: Apache-2.0
// Kernels of programs, compiled when they are first planned and kept.
#pragma once

#include "cuda.h"
#include "jit/problem.h"

namespace npu::cuda::jit {

// A kernel and how its numbers lie. It lives as long as the process.
struct Kernel {
  const void* handle;  // for cudaLaunchKernel
  Numbers numbers;
};

// The kernel of a problem on a device, or null and `why`. Compiles at most
// once, and not at all what is on disk.
const Kernel* kernel_of(
    npu_device device, const Problem& problem, std::string& why);

}  // namespace npu::cuda::jit
