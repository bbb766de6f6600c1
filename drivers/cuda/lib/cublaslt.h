// SPDX-License-Identifier: Apache-2.0
// The part of cuBLASLt that the driver uses, opened at run time. The names and
// numbers are those of cublasLt.h, whose ABI is kept within a major version.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace npu::cuda::lt {

using Status = int;
using Handle = void*;
using MatmulDesc = void*;
using MatrixLayout = void*;
using Preference = void*;

// cublasComputeType_t
inline constexpr int kCompute32F = 68;
inline constexpr int kCompute64F = 70;
inline constexpr int kComputeFastTf32 = 77;
// cublasOperation_t
inline constexpr std::int32_t kNormal = 0;
inline constexpr std::int32_t kTransposed = 1;
// cublasLtMatmulDescAttributes_t
inline constexpr int kTransA = 3;
inline constexpr int kTransB = 4;
inline constexpr int kEpilogue = 7;
inline constexpr int kBiasPointer = 8;
// cublasLtEpilogue_t
inline constexpr std::uint32_t kEpilogueBias = 4;
// cublasLtMatrixLayoutAttribute_t
inline constexpr int kBatchCount = 5;
inline constexpr int kBatchOffset = 6;
// cublasLtMatmulPreferenceAttributes_t
inline constexpr int kMostWorkspace = 1;
inline constexpr int kReductionSchemes = 3;
inline constexpr int kAlignmentA = 5;
inline constexpr int kAlignmentB = 6;
inline constexpr int kAlignmentC = 7;
inline constexpr int kAlignmentD = 8;
// cublasLtReductionScheme_t: partial sums in the type that is computed in.
inline constexpr std::uint32_t kReduceInCompute = 2;

struct Algorithm {
  std::uint64_t data[8];
};
struct Heuristic {
  Algorithm algorithm;
  std::size_t workspace;
  Status state;
  float waves;
  int reserved[4];
};

struct Api {
  Status (*create)(Handle*) = nullptr;
  Status (*desc_create)(MatmulDesc*, int, int) = nullptr;
  Status (*desc_destroy)(MatmulDesc) = nullptr;
  Status (*desc_set)(MatmulDesc, int, const void*, std::size_t) = nullptr;
  Status (*layout_create)(
      MatrixLayout*, int, std::uint64_t, std::uint64_t, std::int64_t) = nullptr;
  Status (*layout_destroy)(MatrixLayout) = nullptr;
  Status (*layout_set)(MatrixLayout, int, const void*, std::size_t) = nullptr;
  Status (*preference_create)(Preference*) = nullptr;
  Status (*preference_destroy)(Preference) = nullptr;
  Status (*preference_set)(Preference, int, const void*, std::size_t) = nullptr;
  Status (*heuristic)(
      Handle,
      MatmulDesc,
      MatrixLayout,
      MatrixLayout,
      MatrixLayout,
      MatrixLayout,
      Preference,
      int,
      Heuristic*,
      int*) = nullptr;
  Status (*matmul)(
      Handle,
      MatmulDesc,
      const void* alpha,
      const void* a,
      MatrixLayout,
      const void* b,
      MatrixLayout,
      const void* beta,
      const void* c,
      MatrixLayout,
      void* d,
      MatrixLayout,
      const Algorithm*,
      void* workspace,
      std::size_t,
      cudaStream_t) = nullptr;
};

// Null: the library is not to be had, and why() says so in one sentence.
const Api* api();
const std::string& why();

}  // namespace npu::cuda::lt
