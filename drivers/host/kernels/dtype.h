// SPDX-License-Identifier: Apache-2.0
// Element types (shared/dtype.h) and their names in messages.
#pragma once

#include "shared/dtype.h"

namespace npu::host {

const char* dtype_name(npu_dtype dtype) noexcept;  // "float32"

}  // namespace npu::host
