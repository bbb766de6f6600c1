// SPDX-License-Identifier: Apache-2.0
// What has not run on a GPU yet is used only where the user asks for it.
#include <cstdlib>
#include <string_view>

#include "cuda.h"

namespace npu::cuda {

bool tries(const char* what) noexcept {
  // Read once: frames are planned by the answer.
  static const std::string_view named = [] {
    const char* const value = std::getenv("NPU_CUDA_TRY");
    return std::string_view(value != nullptr ? value : "");
  }();
  std::string_view rest = named;
  while (!rest.empty()) {
    const std::size_t comma = rest.find(',');
    if (const std::string_view word = rest.substr(0, comma);
        word == what || word == "all") {
      return true;
    }
    rest = comma == std::string_view::npos ? "" : rest.substr(comma + 1);
  }
  return false;
}

}  // namespace npu::cuda
