// SPDX-License-Identifier: Apache-2.0
// Libraries of NVIDIA that the driver opens when it first needs them.
#pragma once

#include <dlfcn.h>

#include <string>
#include <type_traits>

namespace npu::cuda {

// Opens `soname`: the copy that the process has (PyTorch's), one in the folders
// of NPU_CUDA_LIBRARIES, one of the nvidia packages beside this driver, or one
// that the system finds. Null: there is none, and `why` is one sentence.
void* open_library(const char* soname, std::string& why);

// A function of an opened library, or null. `Function` may be a reference.
template <class Function>
std::remove_reference_t<Function> load_function(
    void* library, const char* symbol) noexcept {
  return reinterpret_cast<std::remove_reference_t<Function>>(
      dlsym(library, symbol));
}

// The folders that are searched, in that order. For messages and tests.
std::string library_folders();

}  // namespace npu::cuda
