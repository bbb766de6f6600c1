// SPDX-License-Identifier: Apache-2.0
// Are the numbers of a sample independent of each other? Its distribution says
// nothing about that: a sample drawn once and repeated has the right one.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace optools {

// What is wrong with a sample of equally distributed numbers, in words; empty
// when nothing is. Three tests, of sound samples less than one in 10^9 fails:
// - correlation of ranks with those a lag further on (1 to 8, powers of two,
//   the sizes of rows and planes, half the sample);
// - stretches that occur twice, long enough (80 bits) that none does by chance;
// - more equal pairs than `reference`, another sample of that distribution, has
//   (8 times as many, and 64).
std::string dependence(const at::Tensor& sample, const at::Tensor& reference);

}  // namespace optools
