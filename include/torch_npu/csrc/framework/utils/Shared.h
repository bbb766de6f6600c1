// SPDX-License-Identifier: Apache-2.0
// Names that several of the compatibility headers need.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <cstdint>
#include <optional>

namespace at_npu::native {

constexpr int N = 32;
constexpr int SIZE = 8;

enum class CompileType {
  MEMORY_DEVICE_TYPE = 0,
  MEMORY_HOST_COMPILE_DEPENDENT = 1,
  MEMORY_HOST_COMPILE_INDEPENDENT = 2,
};

struct UnifiedResult {
  std::optional<at::ScalarType> common_type = std::nullopt;
  std::optional<at::IntArrayRef> common_shape = std::nullopt;
  bool result_type_defined = false;
};

}  // namespace at_npu::native
