// SPDX-License-Identifier: Apache-2.0
// What a call of npu_fusion_attention asks for: layouts, heads, lengths, masks.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "aten/custom/arguments.h"
#include "aten/ops/fused/blockwise.h"

namespace npu::fused {

using custom::Arguments;

enum class Layout { kBsh, kSbh, kBsnd, kBnsd, kTnd, kOther };

Layout layout_of(std::string name);

// The arguments of the operator, or of its gradient. `fits` where they are
// right and blockwise.h can compute them; all else is left to the composition,
// which also has the error messages.
class FusionProblem {
 public:
  explicit FusionProblem(const Arguments& args);

  bool fits = false;
  Layout layout;
  std::int64_t heads;
  std::int64_t kv_heads = 1;
  std::int64_t batch = 1;  // sequences
  // Packed: rows of each sequence. Else one number for all.
  std::vector<std::int64_t> q_rows;
  std::vector<std::int64_t> k_rows;
  bool true_statistics = false;  // packed (T, N, 8) in that order of memory
  Scores scores;
  // Absent where the mode says all: bands are intervals.
  at::Tensor mask;
  at::Tensor bias;
  at::Tensor sink;

  bool packed() const {
    return layout == Layout::kTnd;
  }
  std::int64_t rows(std::int64_t i) const {
    return q_rows[packed() ? static_cast<std::size_t>(i) : 0];
  }
  std::int64_t keys(std::int64_t i) const {
    return k_rows[packed() ? static_cast<std::size_t>(i) : 0];
  }
  // B * N * Sq * Skv, the numbers a dropout would draw.
  std::int64_t numels() const;
  // What rows of sequence i see.
  Visible visible(std::int64_t i) const;

  // The parts of tensors in the operator's layouts that belong to sequence i,
  // as (heads, rows, size).
  at::Tensor query_part(const at::Tensor& x, std::int64_t i) const;
  at::Tensor key_part(const at::Tensor& x, std::int64_t i) const;
  // Of statistics, (N, Sq, 8).
  at::Tensor statistic_part(const at::Tensor& x, std::int64_t i) const;
  at::Tensor mask_part(const at::Tensor& mask, std::int64_t i) const;
  at::Tensor bias_part(const at::Tensor& bias, std::int64_t i) const;
  std::vector<std::int64_t> statistic_sizes(const at::Tensor& query) const;

 private:
  bool read_sizes(const Arguments& args);
  bool read_lengths(const Arguments& args);
  bool read_mask(const Arguments& args);
  bool read_bias(const Arguments& args);
  at::Tensor part(
      const at::Tensor& x,
      std::int64_t i,
      std::int64_t head_count,
      const std::vector<std::int64_t>& starts) const;

  std::int64_t mode_ = 0;
  bool banded_ = false;  // a mask was given
  std::int64_t pre_;
  std::int64_t next_;
  std::vector<std::int64_t> prefix_;
  std::vector<std::int64_t> q_starts_;
  std::vector<std::int64_t> k_starts_;
};

}  // namespace npu::fused
