// SPDX-License-Identifier: Apache-2.0
// Products of two matrices: how large the terms of a few elements were.
#pragma once

#include <optional>

#include "judge/host_call.h"

namespace optools {

// Is the call such a product, of real numbers, with one result?
bool is_matrix_product(const HostCall& call);

// M where `elements` (flat, in C order) are, 0 elsewhere; undefined where it
// is cheaper to ask for all of them.
at::Tensor product_majorant(
    const HostCall& call,
    const at::Tensor& reference,
    const std::vector<int64_t>& elements);

// The element furthest off by its own majorant, of a product that passed. With
// |ref| for a majorant the largest E is that of an element that cancelled, and
// near 1 in every larger product. Looks only at elements with an E above
// `limit` so, and of those measures the ones that are furthest off by the sizes
// of their row and column, which is what majorants follow.
struct ProductError {
  int64_t at;
  double e;
};
std::optional<ProductError> worst_by_majorant(
    const HostCall& call,
    const at::Tensor& got,
    const at::Tensor& reference,
    int64_t terms,
    double limit);

}  // namespace optools
