// SPDX-License-Identifier: Apache-2.0
// What a driver answered, as C++: names of codes, and the one exception type.
#pragma once

#include <stdexcept>
#include <string>

#include "npu/driver.h"

namespace npu {

// A failed driver call, or a driver that could not be used. what() is one line
// that names the request, the fault and the cure.
class Error : public std::runtime_error {
 public:
  Error(npu_status code, const std::string& text)
      : std::runtime_error(text), code_(code) {}
  npu_status code() const noexcept {
    return code_;
  }

 private:
  npu_status code_;
};

const char* status_name(npu_status status) noexcept;  // "out of memory"
const char* reason_text(npu_reason reason) noexcept;  // "dtype not supported"

// One line for a failed driver call: "npu: <what>: <status> (<the driver's own
// last words>)."
std::string failure_text(npu_status status, const char* what);

// Throws Error when `status` is a failure, with the driver's own last words.
// `what` names the attempt: "alloc 64 MiB on npu:0".
void check(npu_status status, const char* what);

}  // namespace npu
