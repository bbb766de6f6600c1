// SPDX-License-Identifier: Apache-2.0
// torch._foreach_*: one call of kind multi_map for a whole list. The functions
// of the overloads are generated from ops/aten/foreach.yaml.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "aten/ladder/ladder.h"
#include "aten/ladder/native.h"
#include "aten/twin/twin.h"

namespace npu::foreach {

using List = at::TensorList;
using Scalars = at::ArrayRef<at::Scalar>;
using Results = std::vector<at::Tensor>;

// What an overload asks the driver for: the site has the code of multi_map, and
// `op` is a code of the kind which that names.
struct Op {
  NativeSite& site;
  std::uint32_t op = 0;
};

// The lists of an overload, in its order.
struct Lists {
  Lists(List first) : x(first), n(1) {}
  Lists(List first, List second) : x(first), y(second), n(2) {}
  Lists(List first, List second, List third)
      : x(first), y(second), z(third), n(3) {}

  List x;
  List y;
  List z;
  int n;
};

// What follows the lists: nothing, a number, one per tensor, or a tensor. A
// tensor is the numbers of a list where three lists go before it, and one
// number else.
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

// False: the lists do not go in one call, and nothing was done. The list kernel
// of the device's twin, or PyTorch's own loop over the tensors, then does the
// work, or says what is wrong with them.
bool map_new(
    const Op& op, const Lists& lists, const Factor& factor, Results& made);
bool map_into(const Op& op, const Lists& lists, const Factor& factor);

}  // namespace npu::foreach
