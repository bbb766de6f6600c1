// SPDX-License-Identifier: Apache-2.0
// Products of halves on the CPU: in float32, or by instructions of its own.
//
// Note [Half products]: where a CPU has no instructions for products of halves,
// PyTorch's kernels convert every element each time it is used, or multiply one
// by one: 3 to 45 times float32's time. Casting the operands once, multiplying
// in float32 and rounding once takes 1.0 to 1.3 times, and is never less
// precise. What is done is decided by the CPU's flags, the limit that oneDNN
// was given and the sizes, never by a clock: the same call gives the same bits
// in every run.
#pragma once

#include <c10/core/ScalarType.h>
#include <c10/util/ArrayRef.h>

#include <cstdint>
#include <string>

namespace npu::twin {

// Whether operators of ops/wide.yaml's section `slow` cast this half type.
bool multiplied_in_float32(c10::ScalarType half);
// Why, in words: "the CPU has no avx512_fp16".
std::string why_multiplied_so(c10::ScalarType half);

// Whether a product of matrices, or of batches of them, takes longer in a half
// type than its casts do.
bool outweigh_casts(c10::IntArrayRef a, c10::IntArrayRef b);

}  // namespace npu::twin
