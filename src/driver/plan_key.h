// SPDX-License-Identifier: Apache-2.0
// What a driver's plan may depend on, as bytes.
#pragma once

#include <string>

#include "driver/driver.h"

namespace npu {

// Slot, code, flags, modes, dtypes, the attributes marked `key` and, by shape,
// sizes, strides and the alignment class (16, 64, 256) of every pointer.
// Overwrites `text`.
void write_plan_key(
    std::string& text,
    const Driver& driver,
    npu_device device,
    const npu_call& call,
    bool by_shape);

}  // namespace npu
