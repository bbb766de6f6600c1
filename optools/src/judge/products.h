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

}  // namespace optools
