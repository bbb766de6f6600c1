// SPDX-License-Identifier: Apache-2.0
// The random kinds that try until a candidate is accepted. Element i reads
// block low = B + attempt, high = i + 1, for at most 256 attempts; all in
// float64. Within a block: u = double word (0, 1), v = double word (2, 3), as
// 53 bits * 2^-53; w0..w3 as word * 2^-32 + 2^-33.
//
// poisson   lambda < 10: inversion of u, summing the probabilities from 0 up.
//           else: transformed rejection (Hoermann's PTRS) from u and v.
// gamma     Marsaglia and Tsang: normal from w0 and w1, test with w2. For
//           alpha < 1 a draw of alpha + 1 times w3 of its block to the power of
//           1 / alpha. At least the dtype's smallest normal number.
// binomial  count * prob < 10: inversion of u; else transformed rejection
//           (BTRS) from u and v; prob > 1/2 counts the failures instead.
#pragma once

#include <cstdint>

#include "kernels/philox.h"

namespace npu::host {

double draw_poisson(PhiloxStream stream, std::int64_t i, double lambda);
double draw_gamma(PhiloxStream stream, std::int64_t i, double alpha);
double draw_binomial(
    PhiloxStream stream, std::int64_t i, double count, double prob);

}  // namespace npu::host
