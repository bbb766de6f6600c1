// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include "cuda.h"

namespace npu::cuda {

// Each stream of a device, under a lock: `visit` makes and destroys none.
void for_each_stream(
    npu_device device, const std::function<void(const Stream&)>& visit);

}  // namespace npu::cuda
