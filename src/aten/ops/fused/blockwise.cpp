// SPDX-License-Identifier: Apache-2.0
#include "aten/ops/fused/blockwise.h"

#include <ATen/core/grad_mode.h>

#include <cmath>

#include "aten/ops/fused/score_blocks.h"
#include "aten/ops/fused/score_rows.h"
#include "runtime/parallel.h"

namespace npu::fused {
namespace {

// Forward: blocks of keys one after the other, a running maximum and sum.
class Forward {
 public:
  Forward(
      const Sequence& sequence,
      const AttendResult& result,
      const Scores& scores)
      : blocks_(sequence, scores),
        v_(sequence.v),
        out_(result.out),
        most_(result.most),
        total_(result.total),
        sink_(sequence.sink),
        step_(block_rows(sequence)),
        scratch_(step_, block_keys(sequence)),
        m_(static_cast<std::size_t>(step_)),
        sum_(static_cast<std::size_t>(step_)) {}

  void head(std::int64_t h) {
    for (std::int64_t r = 0; r < blocks_.rows; r += step_) {
      rows(h, r, std::min(step_, blocks_.rows - r));
    }
  }

 private:
  void rows(std::int64_t h, std::int64_t first, std::int64_t n) {
    const float start =
        sink_.defined() ? sink_.const_data_ptr<float>()[h] : kNever;
    std::fill(m_.begin(), m_.end(), start);
    std::fill(sum_.begin(), sum_.end(), sink_.defined() ? 1.0f : 0.0f);
    const KeyRange all = blocks_.seen_by(first, n);
    bool begun = false;
    for (std::int64_t key = all.first; key < all.last; key += kBlockKeys) {
      const KeyRange block{key, std::min(key + kBlockKeys, all.last)};
      const std::int64_t size = block.last - block.first;
      blocks_.products(scratch_, h, first, n, block);
      for (std::int64_t i = 0; i < n; ++i) {
        row(h, first + i, static_cast<std::size_t>(i), block, begun);
      }
      const at::Tensor& p = scratch_.shaped(n, size);
      const at::Tensor& values = v_.at(h / blocks_.group, key, size);
      begun ? add_product(out_.at(h, first, n), p, values)
            : set_product(out_.at(h, first, n), p, values);
      begun = true;
    }
    for (std::int64_t i = 0; i < n; ++i) {
      close(h, first + i, static_cast<std::size_t>(i), begun);
    }
  }
  void row(
      std::int64_t h,
      std::int64_t i,
      std::size_t at,
      KeyRange block,
      bool begun) {
    const std::int64_t size = block.last - block.first;
    float* const x = scratch_.data() + static_cast<std::int64_t>(at) * size;
    const KeyRange p = blocks_.part(i, block);
    const std::int64_t n = p.last - p.first;
    const float factor = blocks_.finish(x, h, i, block, p);
    std::fill(x, x + p.first, 0.0f);
    std::fill(x + p.last, x + size, 0.0f);
    float most = row_largest(x + p.first, factor, n);
    if (most == kNever && has_nan(x + p.first, n)) {
      most = std::numeric_limits<float>::quiet_NaN();
    }
    most = most < m_[at] ? m_[at] : most;
    if (most == kNever) {
      std::fill(x, x + size, 0.0f);
      return;
    }
    const float before = m_[at] == kNever ? 0.0f : std::exp(m_[at] - most);
    sum_[at] = sum_[at] * before + row_exp(x + p.first, factor, most, n);
    m_[at] = most;
    if (begun && before != 1) {
      row_scale(out_.row(h, i), before, out_.width());
    }
  }
  void close(std::int64_t h, std::int64_t i, std::size_t at, bool begun) {
    float* const out = out_.row(h, i);
    const bool blind = m_[at] == kNever || !begun;
    if (blind) {
      std::fill(out, out + out_.width(), 0.0f);
    } else {
      row_scale(out, 1.0f / sum_[at], out_.width());
    }
    const float m = m_[at] == kNever ? kNoKey : m_[at];
    std::fill(most_.row(h, i), most_.row(h, i) + most_.width(), m);
    std::fill(total_.row(h, i), total_.row(h, i) + total_.width(), sum_[at]);
  }

  ScoreBlocks blocks_;
  Window v_;
  Window out_;
  Window most_;
  Window total_;
  at::Tensor sink_;
  std::int64_t step_;
  Scratch scratch_;
  std::vector<float> m_;
  std::vector<float> sum_;
};

// Backward of the query heads that share a head of k and v: p from the
// statistics, slope = p * (grad @ v^T - sum(grad * out)) * scale.
class Backward {
 public:
  Backward(
      const Sequence& sequence, const AttendGrad& grad, const Scores& scores)
      : blocks_(sequence, scores),
        v_(sequence.v),
        grad_(grad.grad),
        out_(grad.out),
        most_(grad.most),
        total_(grad.total),
        dq_(grad.dq),
        dk_(grad.dk),
        dv_(grad.dv),
        step_(block_rows(sequence)),
        p_(step_, block_keys(sequence)),
        slope_(step_, block_keys(sequence)),
        along_(static_cast<std::size_t>(step_)) {}

  void kv_head(std::int64_t h) {
    for (std::int64_t g = h * blocks_.group; g < (h + 1) * blocks_.group; ++g) {
      for (std::int64_t r = 0; r < blocks_.rows; r += step_) {
        rows(g, h, r, std::min(step_, blocks_.rows - r));
      }
    }
  }

 private:
  void rows(
      std::int64_t h, std::int64_t kv, std::int64_t first, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) {
      along_[static_cast<std::size_t>(i)] = row_dot(
          grad_.row(h, first + i), out_.row(h, first + i), grad_.width());
    }
    const KeyRange all = blocks_.seen_by(first, n);
    for (std::int64_t key = all.first; key < all.last; key += kBlockKeys) {
      const KeyRange block{key, std::min(key + kBlockKeys, all.last)};
      const std::int64_t size = block.last - block.first;
      blocks_.products(p_, h, first, n, block);
      for (std::int64_t i = 0; i < n; ++i) {
        probabilities(h, first + i, i, block);
      }
      const at::Tensor& grad = grad_.at(h, first, n);
      add_product(dv_.at(kv, key, size), p_.across(n, size), grad);
      set_product(slope_.shaped(n, size), grad, v_.across(kv, key, size));
      for (std::int64_t i = 0; i < n; ++i) {
        row_slope(
            p_.data() + i * size,
            slope_.data() + i * size,
            along_[static_cast<std::size_t>(i)],
            blocks_.scale,
            size);
      }
      add_product(
          dq_.at(h, first, n), p_.shaped(n, size), blocks_.k.at(kv, key, size));
      add_product(
          dk_.at(kv, key, size), p_.across(n, size), blocks_.q.at(h, first, n));
    }
  }
  void probabilities(
      std::int64_t h, std::int64_t row, std::int64_t at, KeyRange block) {
    const std::int64_t size = block.last - block.first;
    float* const x = p_.data() + at * size;
    const float total = *total_.row(h, row);
    if (total == 0) {
      std::fill(x, x + size, 0.0f);
      return;
    }
    const KeyRange p = blocks_.part(row, block);
    const float factor = blocks_.finish(x, h, row, block, p);
    std::fill(x, x + p.first, 0.0f);
    std::fill(x + p.last, x + size, 0.0f);
    row_exp(
        x + p.first,
        factor,
        *most_.row(h, row) + std::log(total),
        p.last - p.first);
  }

  ScoreBlocks blocks_;
  Window v_;
  Window grad_;
  Window out_;
  Window most_;
  Window total_;
  Window dq_;
  Window dk_;
  Window dv_;
  std::int64_t step_;
  Scratch p_;
  Scratch slope_;
  std::vector<float> along_;
};

// Heads of all sequences among the threads; fn(sequence, head).
template <class Make, class Run>
void for_each_head(
    const std::vector<Sequence>& sequences,
    std::int64_t heads,
    Make make,
    Run run) {
  const auto n = static_cast<std::int64_t>(sequences.size());
  parallel_ranges(n * heads, 1, [&](std::int64_t first, std::int64_t last) {
    const at::AutoDispatchBelowADInplaceOrView below;
    for (std::int64_t i = first; i < last;) {
      const auto at = static_cast<std::size_t>(i / heads);
      auto worker = make(at);
      for (; i < last && static_cast<std::size_t>(i / heads) == at; ++i) {
        run(worker, i % heads);
      }
    }
  });
}

}  // namespace

void attend_blocks(
    const std::vector<Sequence>& sequences,
    const std::vector<AttendResult>& results,
    const Scores& scores) {
  if (sequences.empty()) {
    return;
  }
  for_each_head(
      sequences,
      sequences[0].q.size(0),
      [&](std::size_t i) { return Forward(sequences[i], results[i], scores); },
      [](Forward& worker, std::int64_t h) { worker.head(h); });
}

void attend_blocks_grad(
    const std::vector<Sequence>& sequences,
    const std::vector<AttendGrad>& grads,
    const Scores& scores) {
  if (sequences.empty()) {
    return;
  }
  for_each_head(
      sequences,
      sequences[0].k.size(0),
      [&](std::size_t i) { return Backward(sequences[i], grads[i], scores); },
      [](Backward& worker, std::int64_t h) { worker.kv_head(h); });
}

}  // namespace npu::fused
