// SPDX-License-Identifier: Apache-2.0
// Libraries of NVIDIA that the driver opens when it first needs them.
#pragma once

#include <string>

namespace npu::cuda {

// Opens `soname`: the copy that the process has (PyTorch's), one in the folders
// of NPU_CUDA_LIBRARIES, one of the nvidia packages beside this driver, or one
// that the system finds. Null: there is none, and `why` is one sentence.
void* open_library(const char* soname, std::string& why);

// The folders that are searched, in that order. For messages and tests.
std::string library_folders();

}  // namespace npu::cuda
