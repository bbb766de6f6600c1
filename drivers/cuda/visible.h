// SPDX-License-Identifier: Apache-2.0
// Which GPUs a process may see: CUDA_VISIBLE_DEVICES, read as CUDA reads it.
#pragma once

#include <string>
#include <vector>

namespace npu::cuda {

// Places in `uuids` ("GPU-8c3f...") of the GPUs that `text`, the value of
// CUDA_VISIBLE_DEVICES, names; all of them when it is null. Numbers and
// (beginnings of) names; the list ends before the first that names nothing, and
// a GPU named twice makes it empty.
std::vector<int> visible_devices(
    const char* text, const std::vector<std::string>& uuids);

}  // namespace npu::cuda
