// SPDX-License-Identifier: Apache-2.0
// The kit's own plain arithmetic: element types, conversions, Philox. Written
// to be read, not to be fast, and shares no code with any driver.
#pragma once

#include <array>
#include <complex>
#include <cstdint>
#include <vector>

#include "kit.h"

namespace npu::kit {

// One element of any dtype: an exact integer, or a complex of doubles.
struct Value {
  bool is_integer = false;
  bool is_unsigned = false;
  std::int64_t integer = 0;
  std::complex<double> number;
};

bool is_floating(npu_dtype dtype);  // float16 to float64 and the 8-bit ones
bool is_complex(npu_dtype dtype);

Value load(npu_dtype dtype, const void* from);
// Converts as PyTorch does: integers wrap, small floats are rounded from
// float32, a complex number gives its real part.
void store(npu_dtype dtype, const Value& value, void* to);
// The value as an element of the dtype has it.
Value rounded(npu_dtype dtype, const Value& value);
double number_of(const Value& v);
Value number_value(double number);

// Number of the element at an index list in a view, in memory order of strides.
std::int64_t element_offset(const View& view, std::int64_t linear);

// Philox4x32-10.
std::array<std::uint32_t, 4> philox(
    std::uint64_t seed, std::uint64_t low, std::uint64_t high);

// The words of a call, contract's W(j). Keeps the last block: elements ask for
// neighbours. Not for several threads.
class Words {
 public:
  Words(std::uint64_t seed, std::uint64_t offset)
      : seed_(seed), block_(offset / 4), last_(philox(seed, block_, 0)) {}
  std::uint32_t operator()(std::uint64_t j) const;
  std::uint64_t wide(std::uint64_t i) const;  // W(2i), W(2i+1)

 private:
  const std::array<std::uint32_t, 4>& block(std::uint64_t number) const;

  std::uint64_t seed_;
  std::uint64_t block_;
  mutable std::uint64_t last_number_ = 0;
  mutable std::array<std::uint32_t, 4> last_;
};

// Distance in units of the last place of `expected` in its dtype.
double ulps(npu_dtype dtype, double actual, double expected);

}  // namespace npu::kit
