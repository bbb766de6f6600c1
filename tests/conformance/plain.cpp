// SPDX-License-Identifier: Apache-2.0
// Plain references of products with narrow operands.
#include "plain.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "asked.h"

namespace npu::kit {
namespace {

class Matrix {
 public:
  explicit Matrix(const Operand& operand) : operand_(operand) {}
  std::int64_t rows() const {
    return operand_.sizes.at(0);
  }
  std::int64_t columns() const {
    return operand_.sizes.at(1);
  }
  double operator()(std::int64_t i, std::int64_t j) const {
    return operand_.values.at(static_cast<std::size_t>(i * columns() + j))
        .number.real();
  }

 private:
  const Operand& operand_;
};

// Sum over k of left(i, k) * right(k, j).
template <class Left, class Right>
double product_at(std::int64_t depth, Left left, Right right) {
  double sum = 0;
  for (std::int64_t k = 0; k < depth; ++k) {
    sum += left(k) * right(k);
  }
  return sum;
}

// ---- gemm_scaled ----

// How many rows of a (columns of b) and places of the sum one scale is for.
struct Block {
  std::int64_t lines, places;
};

Block block_of(std::uint32_t scaling) {
  constexpr std::int64_t kAll = std::numeric_limits<std::int64_t>::max();
  switch (scaling) {
    case NPU_GEMM_SCALED_SCALING_A_TENSOR:
      return {kAll, kAll};
    case NPU_GEMM_SCALED_SCALING_A_ROW:
      return {1, kAll};
    case NPU_GEMM_SCALED_SCALING_A_BLOCK_1X128:
      return {1, 128};
    case NPU_GEMM_SCALED_SCALING_A_BLOCK_128X128:
      return {128, 128};
    case NPU_GEMM_SCALED_SCALING_A_BLOCK_1X32:
      return {1, 32};
    default:
      return {1, 16};
  }
}

Outcome gemm_scaled(const Case& value) {
  const Asked asked(value);
  const auto attrs = asked.attrs<npu_gemm_scaled_attrs>();
  const Matrix a(asked["a"]);
  const Matrix b(asked["b"]);
  const Matrix scale_a(asked["scale_a"]);
  const Matrix scale_b(asked["scale_b"]);
  const Block of_a = block_of(attrs.scaling_a);
  const Block of_b = block_of(attrs.scaling_b);
  std::vector<double> out;
  double largest = 0;
  for (std::int64_t i = 0; i < a.rows(); ++i) {
    for (std::int64_t j = 0; j < b.columns(); ++j) {
      const double sum = product_at(
          a.columns(),
          [&](std::int64_t k) {
            return a(i, k) * scale_a(i / of_a.lines, k / of_a.places);
          },
          [&](std::int64_t k) {
            return b(k, j) * scale_b(k / of_b.places, j / of_b.lines);
          });
      out.push_back(
          (sum + asked.at("bias", j, 0)) * asked.at("scale_out", 0, 1));
      largest = std::max(largest, std::abs(out.back()));
    }
  }
  Outcome outcome;
  add_result(outcome, asked["out"], out);
  if (asked["amax"].present()) {
    add_result(outcome, asked["amax"], {largest});
  }
  return outcome;
}

// ---- gemm_int8 ----

Outcome gemm_int8(const Case& value) {
  const Asked asked(value);
  const Matrix a(asked["a"]);
  const Matrix b(asked["b"]);
  std::vector<double> out;
  for (std::int64_t i = 0; i < a.rows(); ++i) {
    for (std::int64_t j = 0; j < b.columns(); ++j) {
      const double sum = product_at(
          a.columns(),
          [&](std::int64_t k) { return a(i, k); },
          [&](std::int64_t k) { return b(k, j); });
      out.push_back(sum * asked.at("scales", j, 1) + asked.at("bias", j, 0));
    }
  }
  Outcome outcome;
  add_result(outcome, asked["out"], out);
  return outcome;
}

constexpr Plain kProducts[] = {
    {"gemm_scaled", gemm_scaled},
    {"gemm_int8", gemm_int8},
};

}  // namespace

Outcome answer(const Case& wide) {
  for (const std::span<const Plain> table :
       {std::span<const Plain>(kProducts), kPlainFused}) {
    for (const Plain& row : table) {
      if (std::string(row.kind) == wide.kind->name) {
        return row.answer(wide);
      }
    }
  }
  return run_case(oracle(), wide);
}

}  // namespace npu::kit
