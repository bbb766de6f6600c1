// SPDX-License-Identifier: Apache-2.0
// Rows that a group of threads works on together: a warp for short ones, a
// block for long ones. Sums are taken in the same order every time.
#pragma once

#include "kernels/element.cuh"

namespace npu::cuda {

inline constexpr std::int64_t kLongRow = 256;  // a block from here on

// kLanes threads that share a row, 32 or kThreads.
template <int kLanes>
struct Group {
  static_assert(kLanes == 32 || kLanes == kThreads);

  __device__ static int lane() {
    return static_cast<int>(threadIdx.x) % kLanes;
  }
  // The first row of this group, and how far the next one is.
  __device__ static std::int64_t first() {
    return std::int64_t{blockIdx.x} * (kThreads / kLanes) +
           threadIdx.x / kLanes;
  }
  __device__ static std::int64_t step() {
    return std::int64_t{gridDim.x} * (kThreads / kLanes);
  }

  // What all lanes have together, in all of them. `scratch` holds one value
  // per warp.
  template <class T, class Op>
  __device__ static T all(T value, T* scratch, Op op) {
    for (int at = 16; at > 0; at /= 2) {
      value = op(value, __shfl_xor_sync(0xffffffffu, value, at));
    }
    if constexpr (kLanes > 32) {
      __syncthreads();
      if (threadIdx.x % 32 == 0) {
        scratch[threadIdx.x / 32] = value;
      }
      __syncthreads();
      value = scratch[0];
      for (int w = 1; w < kLanes / 32; ++w) {
        value = op(value, scratch[w]);
      }
    }
    return value;
  }
  template <class T>
  __device__ static T sum(T value, T* scratch) {
    return all(value, scratch, [](T a, T b) { return a + b; });
  }
};

// Launches kernel<T, 32> or kernel<T, kThreads> over `rows` rows.
#define NPU_LAUNCH_ROWS(stream, rows, length, kernel, args)         \
  ((length) < kLongRow                                              \
       ? launch<&kernel<32>>(                                       \
             stream, blocks_for(stream, (rows)*32), kThreads, args) \
       : launch<&kernel<kThreads>>(                                 \
             stream, blocks_for(stream, (rows)*kThreads), kThreads, args))

}  // namespace npu::cuda
