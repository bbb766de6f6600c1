// SPDX-License-Identifier: Apache-2.0
// torch_npu's error codes, and driver failures as PyTorch exceptions.
#pragma once

#include <c10/util/Exception.h>

#include <string>

#include "driver/status.h"

namespace npu {

enum class Module { kPta = 0, kOps = 1, kDist = 2, kGraph = 3, kProf = 4 };

enum class Code {
  kSuccess = 0,
  kParam = 1,
  kType = 2,
  kValue = 3,
  kPointer = 4,
  kInternal = 5,
  kMemory = 6,
  kNotSupported = 7,
  kNotFound = 8,
  kUnavailable = 9,
  kSyscall = 10,
  kTimeout = 11,
  kPermission = 12,
  kAcl = 100,
  kHccl = 200,
  kGe = 300,
};

// "\n[ERROR] 2026-08-21-10:00:00 (PID:1, Device:0, RankID:-1) ERR01007 OPS
// feature not supported"; empty with TORCH_NPU_COMPACT_ERROR_OUTPUT=1.
std::string error_line(Module module, Code code);
inline std::string ops_error(Code code) {
  return error_line(Module::kOps, code);
}
inline std::string pta_error(Code code) {
  return error_line(Module::kPta, code);
}

// Turns a driver status into the exception PyTorch users expect:
// OutOfMemoryError, NotImplementedError, ValueError or RuntimeError.
void check_driver(npu_status status, const char* what);

// The same for a text made elsewhere.
[[noreturn]] void raise_driver_error(
    npu_status status, const std::string& text);

// Runs `body`; an Error of the driver layer leaves it as the exception PyTorch
// users expect.
template <class Body>
auto use_driver(Body&& body) -> decltype(body()) {
  try {
    return body();
  } catch (const Error& e) {
    raise_driver_error(e.code(), e.what());
  }
}

// Throws for an illegal value of a variable this file reads.
void check_error_environment();

// TORCH_NPU_WARN's gate: TORCH_NPU_WARNING_DISABLE=1 or RANK other than 0.
bool warnings_enabled() noexcept;
// Straight to stderr through c10's base handler, as torch_npu prints.
void warn(
    const std::string& text, const char* function, const char* file, int line);

}  // namespace npu
