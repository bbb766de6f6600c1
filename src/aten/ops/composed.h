// SPDX-License-Identifier: Apache-2.0
// Operators made of others where the CPU's kernels would work on copies.
#pragma once

#include "aten/ladder/unboxed_rows.h"

namespace npu {

ladder::UnboxedRows composed_rows();

}  // namespace npu
