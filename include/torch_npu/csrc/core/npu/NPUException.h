// SPDX-License-Identifier: Apache-2.0
// Error codes that end an adapter's messages, and its warnings.
#pragma once

#include <c10/util/Exception.h>

#include "torch_npu/named_call.h"

enum class ErrCode {
  SUC = 0,
  PARAM = 1,
  TYPE = 2,
  VALUE = 3,
  PTR = 4,
  INTERNAL = 5,
  MEMORY = 6,
  NOT_SUPPORT = 7,
  NOT_FOUND = 8,
  UNAVAIL = 9,
  SYSCALL = 10,
  TIMEOUT = 11,
  PERMISSION = 12,
  ACL = 100,
  HCCL = 200,
  GE = 300,
};

#define PTA_ERROR(code) ::npu::named::error_line(0, static_cast<int>(code))
#define OPS_ERROR(code) ::npu::named::error_line(1, static_cast<int>(code))
#define DIST_ERROR(code) ::npu::named::error_line(2, static_cast<int>(code))
#define TORCH_NPU_WARN(...) TORCH_WARN(__VA_ARGS__)
#define TORCH_NPU_WARN_ONCE(...) TORCH_WARN_ONCE(__VA_ARGS__)
