// SPDX-License-Identifier: Apache-2.0
// Rows read and written 16 bytes at a time: held in registers between the
// passes of a formula, or, where a row is too long for that or does not begin
// at such an address, read again.
//
// Everything here but Group's sums works in the order of a thread's own
// elements, so results do not depend on timing.
#pragma once

#include "kernels/rows.cuh"

namespace npu::cuda {

// An element type as it lies in memory, computed in float.
struct WideF32 {
  using Stored = float;
  static constexpr npu_dtype kDtype = NPU_F32;
  __device__ static float read(float x) {
    return x;
  }
  __device__ static float write(float x) {
    return x;
  }
};
struct WideF16 {
  using Stored = std::uint16_t;
  static constexpr npu_dtype kDtype = NPU_F16;
  __device__ static float read(std::uint16_t x) {
    return half_to_float(x);
  }
  __device__ static std::uint16_t write(float x) {
    return float_to_half(x);
  }
};
struct WideBF16 {
  using Stored = std::uint16_t;
  static constexpr npu_dtype kDtype = NPU_BF16;
  __device__ static float read(std::uint16_t x) {
    return bfloat_to_float(x);
  }
  __device__ static std::uint16_t write(float x) {
    return float_to_bfloat(x);
  }
};

template <class S>
inline constexpr int kPack = 16 / sizeof(typename S::Stored);

template <class S>
union alignas(16) WidePack {
  uint4 all;
  typename S::Stored each[kPack<S>];
};

template <class S>
__device__ inline void read_pack(
    float (&to)[kPack<S>], const typename S::Stored* from) {
  WidePack<S> pack;
  pack.all = *reinterpret_cast<const uint4*>(from);
#pragma unroll
  for (int j = 0; j < kPack<S>; ++j) {
    to[j] = S::read(pack.each[j]);
  }
}
template <class S>
__device__ inline void write_pack(
    typename S::Stored* to, const float (&from)[kPack<S>]) {
  WidePack<S> pack;
#pragma unroll
  for (int j = 0; j < kPack<S>; ++j) {
    pack.each[j] = S::write(from[j]);
  }
  *reinterpret_cast<uint4*>(to) = pack.all;
}

// A row of `packs` packs, at most kPacks for each lane, in registers.
template <class S, int kLanes, int kPacks>
struct HeldRow {
  float x[kPacks][kPack<S>];

  __device__ static int pack_of(int p) {
    return p * kLanes + Group<kLanes>::lane();
  }
  __device__ void read(const typename S::Stored* row, int packs) {
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      if (pack_of(p) < packs) {
        read_pack<S>(x[p], row + pack_of(p) * kPack<S>);
      }
    }
  }
  // body(x, column) for every element of this lane.
  template <class Body>
  __device__ void each(int packs, Body body) {
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      if (pack_of(p) < packs) {
#pragma unroll
        for (int j = 0; j < kPack<S>; ++j) {
          body(x[p][j], p, j);
        }
      }
    }
  }
  __device__ void write(typename S::Stored* row, int packs) const {
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      if (pack_of(p) < packs) {
        write_pack<S>(row + pack_of(p) * kPack<S>, x[p]);
      }
    }
  }
};

// A row that begins anywhere: what lies before the first 16-byte address and
// behind the last one is taken element by element. Rows that are walked
// together lie alike to 16 bytes.
struct Span {
  int head;  // elements before the packs
  int packs;
  int length;
};
template <class S>
__device__ inline Span span_of(const typename S::Stored* row, int length) {
  const auto off = static_cast<int>(
      reinterpret_cast<std::uintptr_t>(row) / sizeof(*row) % kPack<S>);
  const int head = min(off == 0 ? 0 : kPack<S> - off, length);
  return {head, (length - head) / kPack<S>, length};
}

// one(k) for elements outside of packs, many(k) for the first one of a pack:
// lane by lane.
template <class S, int kLanes, class One, class Many>
__device__ inline void walk(const Span& span, One one, Many many) {
  const int lane = Group<kLanes>::lane();
  if (lane < span.head) {
    one(lane);
  }
  for (int p = lane; p < span.packs; p += kLanes) {
    many(span.head + p * kPack<S>);
  }
  const int tail = span.head + span.packs * kPack<S>;
  if (tail + lane < span.length) {
    one(tail + lane);
  }
}

}  // namespace npu::cuda
