// SPDX-License-Identifier: Apache-2.0
// What attention and its backward share: shapes, which keys a query sees, and
// one row of scores.
//
// Row q of head h of sequence b, in order:
//   s[k]   = scale * dot(q, k), then softcap * tanh(s / softcap)
//   hidden   by causal, window or a bool mask: s = -inf; a mask of numbers is
//            added
//   lse    = log(sum exp(s)), the sink (one more logit per head) counted
//   p[k]   = exp(s - lse); dropped with chance `dropout`, else / (1 - dropout)
//   out    = sum p[k] * v[k]; 0 where no key is seen
// Positions: query q stands at q (causal top_left) or at q + Sk - Sq (else); it
// sees keys up to its own with causal, and window_left before and window_right
// after it where those are not negative.
// Layout packed: (rows, heads, size); q_ends and k_ends have one entry more
// than there are sequences, the first 0; lse is (heads, rows).
#pragma once

#include <cmath>
#include <limits>
#include <vector>

#include "kernels/dense.h"
#include "shared/philox.h"

namespace npu::host {

// Where the rows of one operand lie in its dense array.
struct Heads {
  Heads(const npu_tensor& tensor, std::uint32_t layout) {
    const bool packed = layout == NPU_ATTENTION_LAYOUT_PACKED;
    const bool bhsd = layout == NPU_ATTENTION_LAYOUT_BHSD;
    const std::int64_t* sizes = tensor.sizes + (packed ? 0 : 1);
    batch = packed ? 1 : tensor.sizes[0];
    heads = sizes[bhsd ? 0 : 1];
    rows = sizes[bhsd ? 1 : 0];
    size = sizes[2];
    head_stride = bhsd ? rows * size : size;
    row_stride = bhsd ? size : heads * size;
  }
  std::int64_t at(std::int64_t b, std::int64_t h, std::int64_t row) const {
    return b * heads * rows * size + h * head_stride + row * row_stride;
  }
  std::int64_t batch;
  std::int64_t heads;
  std::int64_t rows;
  std::int64_t size;
  std::int64_t head_stride;
  std::int64_t row_stride;
};

// One sequence: which part of the batch, and its rows.
struct Sequence {
  std::int64_t b;
  std::int64_t q_first;
  std::int64_t q_rows;
  std::int64_t k_first;
  std::int64_t k_rows;
};

// Keys [first, last) a query may see.
struct Span {
  std::int64_t first;
  std::int64_t last;
};

template <class T>
class Attention {
 public:
  template <class Args>
  Attention(const Args& args, const npu_call& call)
      : q(args.q),
        k(args.k),
        v(args.v),
        mask(args.mask),
        q_ends(args.q_ends),
        k_ends(args.k_ends),
        sink(args.sink),
        q_heads(*args.q, args.attrs.layout),
        k_heads(*args.k, args.attrs.layout),
        v_heads(*args.v, args.attrs.layout),
        group(q_heads.heads / k_heads.heads),
        scale(args.attrs.scale),
        softcap(args.attrs.softcap),
        dropout(args.attrs.dropout),
        causal_(args.attrs.causal),
        window_left_(args.attrs.window_left),
        window_right_(args.attrs.window_right),
        mask_tensor_(args.mask),
        rng_(call.rng) {
    const bool packed = args.attrs.layout == NPU_ATTENTION_LAYOUT_PACKED;
    const std::int64_t n = packed ? args.q_ends->numel - 1 : q_heads.batch;
    for (std::int64_t b = 0; b < n; ++b) {
      sequences.push_back(
          packed
              ? Sequence{0, q_ends[b], q_ends[b + 1] - q_ends[b], k_ends[b], k_ends[b + 1] - k_ends[b]}
              : Sequence{b, 0, q_heads.rows, 0, k_heads.rows});
    }
  }

  npu_status status() const noexcept {
    return loaded(q, k, v, mask, q_ends, k_ends, sink);
  }

  Span seen(const Sequence& s, std::int64_t row) const {
    const bool top_left = causal_ == NPU_ATTENTION_CAUSAL_TOP_LEFT;
    const std::int64_t place = row + (top_left ? 0 : s.k_rows - s.q_rows);
    Span span{0, s.k_rows};
    if (causal_ != NPU_ATTENTION_CAUSAL_NONE) {
      span.last = std::min(span.last, place + 1);
    }
    if (window_left_ >= 0) {
      span.first = std::max(span.first, place - window_left_);
    }
    if (window_right_ >= 0) {
      span.last = std::min(span.last, place + window_right_ + 1);
    }
    span.last = std::max<std::int64_t>(span.last, 0);
    span.first = std::min(span.first, span.last);
    return span;
  }

  // Index of the mask's element; dims of size 1 stand for all.
  std::int64_t mask_at(
      std::int64_t b,
      std::int64_t h,
      std::int64_t row,
      std::int64_t key) const {
    const std::int64_t place[4] = {b, h, row, key};
    std::int64_t index = 0;
    for (int d = 0; d < mask_tensor_->ndim; ++d) {
      const std::int64_t size = mask_tensor_->sizes[d];
      index =
          index * size + (size == 1 ? 0 : place[4 - mask_tensor_->ndim + d]);
    }
    return index;
  }

  // The score before the mask, softcap applied.
  double raw_score(
      const Sequence& s,
      std::int64_t h,
      std::int64_t row,
      std::int64_t key) const {
    const T* a = q.data() + q_heads.at(s.b, h, s.q_first + row);
    const T* b = k.data() + k_heads.at(s.b, h / group, s.k_first + key);
    double dot = 0;
    for (std::int64_t d = 0; d < q_heads.size; ++d) {
      dot += static_cast<double>(a[d]) * b[d];
    }
    dot *= scale;
    return softcap > 0 ? softcap * std::tanh(dot / softcap) : dot;
  }

  double masked(
      double score,
      const Sequence& s,
      std::int64_t h,
      std::int64_t row,
      std::int64_t key) const {
    if (!mask) {
      return score;
    }
    const double m = mask[mask_at(s.b, h, row, key)];
    return mask_tensor_->dtype != NPU_BOOL ? score + m
           : m != 0                        ? score
                    : -std::numeric_limits<double>::infinity();
  }

  // 0 where dropped, else 1 / (1 - dropout); 16 bits per key decide.
  double kept(
      std::size_t sequence,
      std::int64_t h,
      std::int64_t row,
      std::int64_t key) const {
    if (dropout <= 0) {
      return 1;
    }
    const std::uint64_t offset =
        rng_.offset + (rng_.offset_ptr != nullptr ? *rng_.offset_ptr : 0);
    const std::uint64_t seed =
        rng_.seed_ptr != nullptr ? *rng_.seed_ptr : rng_.seed;
    const auto line =
        (static_cast<std::int64_t>(sequence) * q_heads.heads + h) *
            longest_query() +
        row;
    const PhiloxBlock block = philox(
        seed,
        offset / 4 + static_cast<std::uint64_t>(key / 8),
        static_cast<std::uint64_t>(line));
    const std::uint32_t lane =
        (block.w[key % 8 / 2] >> (key % 2 == 0 ? 0 : 16)) & 0xffffu;
    return lane < std::floor(dropout * 0x1p16) ? 0 : 1 / (1 - dropout);
  }

  std::int64_t longest_query() const {
    std::int64_t most = 0;
    for (const Sequence& s : sequences) {
      most = std::max(most, s.q_rows);
    }
    return most;
  }

  Loaded<T> q;
  Loaded<T> k;
  Loaded<T> v;
  Loaded<T> mask;
  Loaded<std::int64_t> q_ends;
  Loaded<std::int64_t> k_ends;
  Loaded<T> sink;
  Heads q_heads;
  Heads k_heads;
  Heads v_heads;
  std::int64_t group;  // query heads that share one head of k and v
  double scale;
  double softcap;
  double dropout;
  std::vector<Sequence> sequences;

 private:
  std::uint32_t causal_;
  std::int64_t window_left_;
  std::int64_t window_right_;
  const npu_tensor* mask_tensor_;
  npu_rng rng_;
};

npu_status attention_grad_run(const npu_call& call);

}  // namespace npu::host
