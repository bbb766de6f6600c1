// SPDX-License-Identifier: Apache-2.0
// Random kinds of the host driver: what each attribute means, which words of
// the Philox stream each element uses, and what the family's files share.
//
// This comment is the long form of "Random numbers" in the contract: a
// driver that follows it draws the same numbers. W(j) is word j mod 4 of the
// Philox block with low counter B + j/4 and high counter 0; B = offset / 4.
// n = numel of the output; the host side moves its generator by `words`,
// rounded up to a multiple of 4.
//
// kind random
// code         a       b      low  range  p       q      words
// uniform      from    to     -    -      -       -      n (f64: 2n)
// normal       mean    std    -    -      -       -      n (f64: 2n)
// bernoulli    prob    -      -    -      prob    -      n
// int          -       -      low  range  -       -      n (wide: 2n)
// exponential  lambda  -      -    -      -       -      n (f64: 2n)
// geometric    prob    -      -    -      -       -      n (f64, ints: 2n)
// cauchy       median  sigma  -    -      -       -      n (f64: 2n)
// log_normal   mean    std    -    -      -       -      n (f64: 2n)
// poisson      lambda  -      -    -      lambda  -      1024
// gamma        alpha   -      -    -      alpha   -      1024
// binomial     count   prob   -    -      count   prob   1024
// kind randperm     n = numel of out                     2n
// kind multinomial  weights (R, C) or (C)                replacement:
// 2*R*samples
//                                                        else: 2*R*C
// kind dropout      p = chance to be dropped, scale      n
//
// Operands p and q are contiguous, with the sizes of out; when one is absent
// its attribute (first column of the pair) stands for every element. Their
// dtype is that of out, except for bernoulli, where it is any float dtype.
//
// The numbers, bit for bit. "Double word" i is W(2i) + 2^32 * W(2i+1).
// uniform      u = top 24 bits of W(i) * 2^-24; 11 bits for f16, 8 for bf16,
//              53 of the double word for f64. from and to are rounded to the
//              dtype; u * (to - from), then + from, each rounded, in f32 (f64
//              for f64), then rounded to the dtype; a result equal to `to`
//              becomes `from`.
// bernoulli    1 where W(i) < floor(prob * 2^32), else 0.
// int          value = low + floor(w * range / 2^32), w = W(i). Wide, when
//              range > 2^32 or 0 (which means 2^64): double words and 2^64.
//              Then the int64 (or, for u64, the same bits) becomes the dtype.
// normal       elements 2k and 2k+1 are r cos(t) and r sin(t), with
//              r = sqrt(-2 ln u1), t = 2 pi u2; u1 from W(2k), u2 from W(2k+1),
//              each w * 2^-32 + 2^-33 in f32. f64: double words 2k and 2k+1,
//              (top 53 bits) * 2^-53 + 2^-54. Then * std, then + mean.
// The next four are computed in f32 (f64 for f64; geometric also for ints)
// from u = top 24 (53) bits as in uniform f32 (f64), then rounded.
// exponential  max(-ln(1 - u), epsilon / 2) / lambda, never 0 unless lambda is
//              infinite: raised to the dtype's smallest positive number.
// geometric    max(1, ceil(ln(1 - u) / ln(1 - prob))); ints are clamped.
// cauchy       median + sigma * tan(pi * (u - 1/2 + 2^-25)); f64: 2^-54.
// log_normal   exp(normal(mean, std)).
// poisson, gamma, binomial: see shared/random_reject.h; low = B + attempt, high
// =
//              i + 1, all in f64.
// randperm     the indices 0..n-1, stably sorted by their double words.
// multinomial  with replacement: sample s of row r takes double word
//              r * samples + s as u in [0, 1) (53 bits) and is the first
//              category at which the running sum of the weights, in f64, is
//              over u * total. Without: category c of row r takes double word
//              r * C + c; the `samples` smallest -ln(1 - u) / weight, in order.
// dropout      kept where W(i) >= floor(p * 2^32): out = in * scale, mask = 1;
//              else out = in * 0 (a NaN stays), mask = 0. mask may be absent.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/kernel.h"
#include "kernels/random_isa.h"
#include "shared/philox.h"
#include "shared/random_draw64.h"

namespace npu::host {

// Seed and first block of a call. Reads device memory when the call says so.
inline PhiloxStream philox_stream(const npu_rng& rng) noexcept {
  const std::uint64_t offset =
      rng.offset + (rng.offset_ptr != nullptr ? *rng.offset_ptr : 0);
  return {rng.seed_ptr != nullptr ? *rng.seed_ptr : rng.seed, offset / 4};
}

// body(begin, count, words) over n elements that use words_each (1 or 2) words;
// on many threads, cut at whole chunks, so that bits do not depend on it.
template <class Body>
npu_status for_words(
    PhiloxStream stream, std::int64_t n, int words_each, Body body) {
  const std::int64_t chunk = kChunkWords / words_each;
  const std::int64_t chunks = (n + chunk - 1) / chunk;
  const RandomIsa& isa = random_isa();
  return parallel(
      chunks, kGrain / chunk, [&](std::int64_t first, std::int64_t last) {
        alignas(64) std::uint32_t words[kChunkWords];
        for (std::int64_t c = first; c < last; ++c) {
          const std::int64_t begin = c * chunk;
          const auto count = static_cast<int>(std::min(chunk, n - begin));
          const PhiloxStream at{
              stream.seed,
              stream.block + static_cast<std::uint64_t>(c) * (kChunkWords / 4)};
          isa.words(at, (count * words_each + 3) / 4, words);
          body(begin, count, static_cast<const std::uint32_t*>(words));
        }
      });
}

// The rows of kRandomKernels.
npu_status random_caps(std::uint32_t code, npu_op_caps& out);
npu_status random_run(const npu_call& call);
npu_status dropout_caps(std::uint32_t code, npu_op_caps& out);
npu_status dropout_run(const npu_call& call);
npu_status randperm_caps(std::uint32_t code, npu_op_caps& out);
npu_status randperm_run(const npu_call& call);
npu_status multinomial_caps(std::uint32_t code, npu_op_caps& out);
npu_status multinomial_run(const npu_call& call);

inline constexpr std::uint64_t kFloats =
    NPU_DTYPE_BIT(NPU_F16) | NPU_DTYPE_BIT(NPU_BF16) | NPU_DTYPE_BIT(NPU_F32) |
    NPU_DTYPE_BIT(NPU_F64);
inline constexpr std::uint64_t kInts =
    NPU_DTYPE_BIT(NPU_U8) | NPU_DTYPE_BIT(NPU_I8) | NPU_DTYPE_BIT(NPU_I16) |
    NPU_DTYPE_BIT(NPU_I32) | NPU_DTYPE_BIT(NPU_I64) | NPU_DTYPE_BIT(NPU_U16) |
    NPU_DTYPE_BIT(NPU_U32) | NPU_DTYPE_BIT(NPU_U64);

// What every random kind's caps have in common.
inline void common_caps(npu_op_caps& out) noexcept {
  out.flags = NPU_CAP_INDEX64 | NPU_CAP_DETERMINISTIC | NPU_CAP_CAPTURE;
  out.dtype_rule = NPU_DTYPES_FREE;
  out.plan_use = NPU_PLAN_NONE;
}

inline bool has_dtype(const npu_tensor* t, std::uint64_t mask) noexcept {
  return t != nullptr && t->dtype < NPU_DTYPE_COUNT &&
         (mask & NPU_DTYPE_BIT(t->dtype)) != 0;
}

// NPU_OK, or the error to return for an rng no generator would hand out.
npu_status check_rng(const npu_call& call);

}  // namespace npu::host
