// SPDX-License-Identifier: Apache-2.0
// The inner loops of the random kinds, compiled once per instruction set. All
// give the same bits.
#pragma once

#include <cstdint>

#include "shared/philox.h"

namespace npu::host {

// Words are made and used in chunks that stay in the first-level cache.
inline constexpr int kChunkWords = 2048;

struct RandomIsa {
  // kChunkWords or fewer words from the block on; `blocks` is rounded up to
  // kLaneBlocks, and `out` has room for that.
  void (*words)(PhiloxStream stream, std::int64_t blocks, std::uint32_t* out);

  // n elements from n words, or n rounded up to even for `normal`.
  using Draw =
      void (*)(const std::uint32_t* w, int n, float a, float b, float* out);
  Draw uniform;      // from, to
  Draw normal;       // mean, std
  Draw exponential;  // lambda, least result
  Draw geometric;    // ln(1 - prob), unused
  Draw cauchy;       // median, sigma
  Draw log_normal;   // mean, std
  using DrawHalf = void (*)(
      const std::uint32_t* w, int n, float a, float b, std::uint16_t* out);
  DrawHalf uniform_f16;
  DrawHalf uniform_bf16;

  void (*to_f16)(const float* in, int n, std::uint16_t* out);
  void (*to_bf16)(const float* in, int n, std::uint16_t* out);

  // out[i] = w[i] <= last ? one : 0, for elements of 1, 2, 4 and 8 bytes.
  void (*bernoulli[4])(
      const std::uint32_t* w,
      int n,
      std::uint32_t last,
      std::uint64_t one,
      void* out);

  // kept = w[i] >= first: out = in * scale and mask = kept_mask, else in * 0
  // and 0. For f16, bf16, f32, f64; mask may be null.
  void (*dropout[4])(
      const std::uint32_t* w,
      int n,
      const void* in,
      std::uint32_t first,
      double scale,
      std::uint8_t kept_mask,
      void* out,
      std::uint8_t* mask);
};

// `words` makes this many blocks at a time.
inline constexpr std::int64_t kLaneBlocks = 32;
static_assert(kChunkWords % (4 * kLaneBlocks) == 0);

namespace isa_baseline {
extern const RandomIsa kRandom;
}
namespace isa_avx2 {
extern const RandomIsa kRandom;
}
namespace isa_avx512 {
extern const RandomIsa kRandom;
}

// The one NPU_HOST_ISA and this machine allow.
const RandomIsa& random_isa() noexcept;

}  // namespace npu::host
