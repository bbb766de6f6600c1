// SPDX-License-Identifier: Apache-2.0
// Attention on the CPU in blocks that stay in a core's cache, with each row's
// maximum and sum of exponentials, which PyTorch's flash kernel keeps to
// itself.
//
// What a query row sees of the keys is an interval, so bands, causal masks and
// prefixes cost nothing and blocks outside are left out. A mask or a bias given
// as a tensor comes on top.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

namespace npu::fused {

// Of a row that sees no key: its maximum. The sum is 0, and so is the output.
inline constexpr float kNoKey = std::numeric_limits<float>::lowest();
inline constexpr std::int64_t kFarAway = std::int64_t{1} << 40;

struct KeyRange {
  std::int64_t first;
  std::int64_t last;  // not seen
};

// Row i sees the keys from i - before to i + after, and those before `prefix`.
struct Visible {
  std::int64_t before = kFarAway;
  std::int64_t after = kFarAway;
  std::int64_t prefix = 0;

  KeyRange of(std::int64_t row, std::int64_t keys) const {
    const std::int64_t last = std::max(row + after + 1, prefix);
    return {
        std::clamp<std::int64_t>(row - before, 0, keys),
        std::clamp<std::int64_t>(last, 0, keys)};
  }
  bool is_all() const {
    return before >= kFarAway && after >= kFarAway;
  }
};

// One sequence, float32, CPU. Heads of k and v may be fewer than those of q.
// The last dimension of matrices is dense.
struct Sequence {
  at::Tensor q;  // (N, Sq, D)
  at::Tensor k;  // (Nkv, Sk, D)
  at::Tensor v;  // (Nkv, Sk, Dv)
  // bool or uint8, (1 or N, Sq, Sk): dropped where true; may be undefined.
  at::Tensor mask;
  // float32, (1 or N, 1 or Sq, Sk): added to the scores; may be undefined.
  at::Tensor bias;
  at::Tensor sink;  // float32, (N): a logit without a value; may be undefined
  Visible visible;
};

struct Scores {
  double scale = 1;
  bool bias_first = true;  // added before scaling
};

// Where results go: out (N, Sq, Dv); statistics (N, Sq, times), the value
// repeated along the last dimension, which is dense. All float32.
struct AttendResult {
  at::Tensor out;
  at::Tensor most;
  at::Tensor total;
};

void attend_blocks(
    const std::vector<Sequence>& sequences,
    const std::vector<AttendResult>& results,
    const Scores& scores);

// What the backward pass reads besides: the statistics as above, the output and
// its gradient (N, Sq, Dv); where it adds: dq, dk, dv, of the shapes of q, k,
// v.
struct AttendGrad {
  at::Tensor grad;
  at::Tensor out;
  at::Tensor most;
  at::Tensor total;
  at::Tensor dq;
  at::Tensor dk;
  at::Tensor dv;
};

void attend_blocks_grad(
    const std::vector<Sequence>& sequences,
    const std::vector<AttendGrad>& grads,
    const Scores& scores);

}  // namespace npu::fused
