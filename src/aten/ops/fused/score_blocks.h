// SPDX-License-Identifier: Apache-2.0
// Blocks of attention scores on the CPU, and the views they are made with.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/addmm_cpu_dispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm_cpu_dispatch.h>

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <limits>

#include "aten/ops/fused/blockwise.h"

namespace npu::fused {

inline constexpr float kNever = -std::numeric_limits<float>::infinity();
inline constexpr std::int64_t kBlockKeys = 512;  // of a block of scores
// Fewer rows where an interval moves with them: less of a block is unseen.
inline constexpr std::int64_t kBlockRows = 128;
inline constexpr std::int64_t kBandRows = 64;

// A matrix that is moved over a tensor's memory: a view without the cost of
// making one.
class Window {
 public:
  Window() = default;
  // Of the last two dimensions of (heads, rows, columns).
  explicit Window(const at::Tensor& tensor)
      : tensor_(tensor),
        view_(tensor.select(0, 0)),
        transposed_(view_.t()),
        rows_(tensor.size(1)) {}
  // Rows [first, first + n) of a head.
  const at::Tensor& at(std::int64_t head, std::int64_t first, std::int64_t n) {
    place(view_, head, first, {n, tensor_.size(2)}, {stride(), 1});
    return view_;
  }
  const at::Tensor& across(
      std::int64_t head, std::int64_t first, std::int64_t n) {
    place(transposed_, head, first, {tensor_.size(2), n}, {1, stride()});
    return transposed_;
  }
  // Asked for as constant: inputs may be lazy copies, which threads that ask to
  // write would make real, all at once.
  float* row(std::int64_t head, std::int64_t row) const {
    return const_cast<float*>(tensor_.const_data_ptr<float>()) +
           head * tensor_.stride(0) + row * tensor_.stride(1);
  }
  std::int64_t width() const {
    return tensor_.size(2);
  }

 private:
  std::int64_t stride() const {
    return rows_ > 1 ? tensor_.stride(1) : std::max<std::int64_t>(1, width());
  }
  void place(
      const at::Tensor& view,
      std::int64_t head,
      std::int64_t first,
      std::initializer_list<std::int64_t> sizes,
      std::initializer_list<std::int64_t> strides) const {
    view.unsafeGetTensorImpl()->set_sizes_and_strides(
        sizes,
        strides,
        tensor_.storage_offset() + head * tensor_.stride(0) +
            first * tensor_.stride(1));
  }
  at::Tensor tensor_;
  at::Tensor view_;
  at::Tensor transposed_;
  std::int64_t rows_ = 0;
};

// Memory for a block of scores, as (rows, keys) of any block.
class Scratch {
 public:
  Scratch(std::int64_t rows, std::int64_t keys)
      : memory_(
            at::empty({rows * keys}, at::TensorOptions().dtype(at::kFloat))),
        view_(memory_.view({rows, keys})),
        transposed_(view_.t()) {}
  at::Tensor& shaped(std::int64_t rows, std::int64_t keys) {
    const std::int64_t sizes[] = {rows, keys};
    const std::int64_t strides[] = {keys, 1};
    view_.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
    return view_;
  }
  const at::Tensor& across(std::int64_t rows, std::int64_t keys) {
    const std::int64_t sizes[] = {keys, rows};
    const std::int64_t strides[] = {1, keys};
    transposed_.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
    return transposed_;
  }
  float* data() const {
    return memory_.mutable_data_ptr<float>();
  }

 private:
  at::Tensor memory_;
  at::Tensor view_;
  at::Tensor transposed_;
};

// out += a @ b
inline void add_product(
    const at::Tensor& out, const at::Tensor& a, const at::Tensor& b) {
  at::Tensor to = out;
  at::cpu::addmm_(to, a, b, 1, 1);
}
inline void set_product(
    const at::Tensor& out, const at::Tensor& a, const at::Tensor& b) {
  at::Tensor to = out;
  at::cpu::mm_out(to, a, b);
}

// A row of a mask or bias that may be shared by heads and rows.
template <class T>
class SharedRows {
 public:
  explicit SharedRows(const at::Tensor& tensor) {
    if (tensor.defined()) {
      data_ = static_cast<const T*>(tensor.const_data_ptr());
      head_ = tensor.size(0) == 1 ? 0 : tensor.stride(0);
      row_ = tensor.size(1) == 1 ? 0 : tensor.stride(1);
      key_ = tensor.stride(2);
    }
  }
  explicit operator bool() const {
    return data_ != nullptr;
  }
  const T* row(std::int64_t head, std::int64_t row) const {
    return data_ + head * head_ + row * row_;
  }
  std::int64_t step() const {
    return key_;
  }

 private:
  const T* data_ = nullptr;
  std::int64_t head_ = 0;
  std::int64_t row_ = 0;
  std::int64_t key_ = 0;
};

// The scores of a sequence's rows against blocks of keys.
class ScoreBlocks {
 public:
  ScoreBlocks(const Sequence& sequence, const Scores& scores)
      : q(sequence.q),
        k(sequence.k),
        rows(sequence.q.size(1)),
        keys(sequence.k.size(1)),
        group(sequence.q.size(0) / sequence.k.size(0)),
        visible(sequence.visible),
        scale(static_cast<float>(scores.scale)),
        mask_(sequence.mask),
        bias_(sequence.bias),
        before_(scores.bias_first) {}

  // The keys that some of the rows [first, first + n) see.
  KeyRange seen_by(std::int64_t first, std::int64_t n) const {
    return {
        visible.of(first, keys).first, visible.of(first + n - 1, keys).last};
  }
  // q @ k^T of a block, not scaled.
  void products(
      Scratch& to,
      std::int64_t head,
      std::int64_t first,
      std::int64_t n,
      KeyRange block) {
    set_product(
        to.shaped(n, block.last - block.first),
        q.at(head, first, n),
        k.across(head / group, block.first, block.last - block.first));
  }
  // What a row sees of a block, counted from the block's first key.
  KeyRange part(std::int64_t row, KeyRange block) const {
    const KeyRange all = visible.of(row, keys);
    const std::int64_t size = block.last - block.first;
    const std::int64_t first =
        std::clamp<std::int64_t>(all.first - block.first, 0, size);
    return {
        first, std::clamp<std::int64_t>(all.last - block.first, first, size)};
  }
  // Bias and mask put into a row; afterwards it is to be multiplied by this.
  float finish(
      float* row,
      std::int64_t head,
      std::int64_t i,
      KeyRange block,
      KeyRange p) {
    float factor = scale;
    if (bias_) {
      const float* const bias = bias_.row(head, i) + block.first * bias_.step();
      const float times = before_ ? 1.0f : scale;
      factor = before_ ? scale : 1.0f;
      for (std::int64_t j = p.first; j < p.last; ++j) {
        row[j] = row[j] * times + bias[j * bias_.step()];
      }
    }
    if (mask_) {
      const std::uint8_t* const mask =
          mask_.row(head, i) + block.first * mask_.step();
      const float never = factor < 0 ? -kNever : kNever;
      for (std::int64_t j = p.first; j < p.last; ++j) {
        row[j] = mask[j * mask_.step()] != 0 ? never : row[j];
      }
      if (factor == 0) {  // 0 * inf is no number
        scale_masked(row, mask, p);
        factor = 1;
      }
    }
    return factor;
  }

  Window q;
  Window k;
  const std::int64_t rows;
  const std::int64_t keys;
  const std::int64_t group;
  const Visible visible;
  const float scale;

 private:
  void scale_masked(float* row, const std::uint8_t* mask, KeyRange p) const {
    for (std::int64_t j = p.first; j < p.last; ++j) {
      row[j] = mask[j * mask_.step()] != 0 ? kNever : 0.0f;
    }
  }
  const SharedRows<std::uint8_t> mask_;
  const SharedRows<float> bias_;
  const bool before_;
};

inline bool has_nan(const float* x, std::int64_t n) {
  return std::any_of(x, x + n, [](float value) { return value != value; });
}

inline std::int64_t block_rows(const Sequence& s) {
  return std::min(s.visible.is_all() ? kBlockRows : kBandRows, s.q.size(1));
}

inline std::int64_t block_keys(const Sequence& s) {
  return std::min(kBlockKeys, s.k.size(1));
}

}  // namespace npu::fused
