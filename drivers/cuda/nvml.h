// SPDX-License-Identifier: Apache-2.0
// What NVML knows of the GPUs. Asking it does not initialise CUDA, so that a
// child forked later can still use them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace npu::cuda {

struct Gpu {
  std::string name;
  std::string uuid;  // "GPU-8c3f9a62-..."
  std::uint64_t memory = 0;
  int major = 0;
  int minor = 0;
  int cores = 0;
};

// All GPUs of the machine in the order of their bus numbers. False: there is no
// NVML, and `why` says so in one sentence.
bool read_gpus(std::vector<Gpu>& out, std::string& why);

}  // namespace npu::cuda
