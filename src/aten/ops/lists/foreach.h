// SPDX-License-Identifier: Apache-2.0
// torch._foreach_*: one call of kind multi_map for a whole list.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "aten/core/site.h"

namespace npu::foreach {

using List = at::TensorList;
using Scalars = at::ArrayRef<at::Scalar>;
using Results = std::vector<at::Tensor>;

// What an overload asks the driver for: a code of multi_map and, in `op`, a
// code of the kind that names.
struct Op {
  StaticName label;
  std::uint32_t code;
  std::uint32_t op;
};

// The scalar of an overload: none, one, one per tensor, or a 0-dim tensor.
struct Factor {
  Factor() = default;
  Factor(const at::Scalar& value) : one(&value) {}
  Factor(Scalars values) : each(values), is_list(true) {}
  Factor(const at::Tensor& value) : tensor(&value) {}

  const at::Scalar* one = nullptr;
  Scalars each;
  bool is_list = false;
  const at::Tensor* tensor = nullptr;
};

// Nothing and false: the lists do not go in one call (PyTorch's own loop over
// the tensors then does the work, or says what is wrong with them).
std::optional<Results> map_new(
    const Op& op, List x, List y, List z, const Factor& factor);
bool map_into(const Op& op, List self, List y, List z, const Factor& factor);

}  // namespace npu::foreach
