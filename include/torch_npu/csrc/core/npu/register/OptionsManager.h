// SPDX-License-Identifier: Apache-2.0
// Options of the runtime that adapters ask for.
#pragma once

#include <cstdlib>
#include <string_view>

namespace c10_npu::option {

class OptionsManager {
 public:
  static bool CheckTriCombinedEnable() {
    return false;
  }
  static bool CheckBlockingEnable() {
    const char* const text = std::getenv("ASCEND_LAUNCH_BLOCKING");
    return text != nullptr && std::string_view(text) == "1";
  }
};

}  // namespace c10_npu::option

namespace torch_npu::option {
using c10_npu::option::OptionsManager;
}  // namespace torch_npu::option
