// SPDX-License-Identifier: Apache-2.0
// Log lines and error codes of adapters: ASCEND_LOGI, OPS_ERROR.
#include <array>
#include <cstdarg>
#include <cstdio>
#include <string_view>

#include "driver/services.h"
#include "runtime/error.h"
#include "torch_npu/named_call.h"

namespace npu::named {

void log(int level, const char* file, int line, const char* format, ...) {
  if (!log_enabled(level)) {
    return;
  }
  std::array<char, 1024> text{};  // the rest of a longer line is cut
  va_list values;
  va_start(values, format);
  std::vsnprintf(text.data(), text.size(), format, values);
  va_end(values);
  const std::string_view path = file;
  npu::log(
      level,
      std::string(path.substr(path.find_last_of('/') + 1)) + ":" +
          std::to_string(line) + ": " + text.data());
}

std::string error_line(int module, int code) {
  return npu::error_line(static_cast<Module>(module), static_cast<Code>(code));
}

}  // namespace npu::named
