// SPDX-License-Identifier: Apache-2.0
// The part of NCCL that the driver uses, opened at run time. Names and numbers
// are those of nccl.h, whose ABI is kept within a major version.
#pragma once

#include <cuda_runtime_api.h>

#include <climits>
#include <cstddef>
#include <string>

namespace npu::cuda::nccl {

// ncclResult_t
using Result = int;
inline constexpr Result kSuccess = 0;
inline constexpr Result kInvalidArgument = 4;
inline constexpr Result kInvalidUsage = 5;
inline constexpr Result kRemoteError = 6;
inline constexpr Result kInProgress = 7;

using Handle = void*;  // ncclComm_t

inline constexpr std::size_t kIdBytes = 128;
struct Id {
  char bytes[kIdBytes];
};

// ncclDataType_t
using DataType = int;
inline constexpr DataType kInt8 = 0;
inline constexpr DataType kUint8 = 1;
inline constexpr DataType kInt32 = 2;
inline constexpr DataType kUint32 = 3;
inline constexpr DataType kInt64 = 4;
inline constexpr DataType kUint64 = 5;
inline constexpr DataType kFloat16 = 6;
inline constexpr DataType kFloat32 = 7;
inline constexpr DataType kFloat64 = 8;
inline constexpr DataType kBfloat16 = 9;

// ncclRedOp_t
using Reduction = int;
inline constexpr Reduction kSum = 0;
inline constexpr Reduction kProduct = 1;
inline constexpr Reduction kMax = 2;
inline constexpr Reduction kMin = 3;
inline constexpr Reduction kAverage = 4;

// ncclConfig_t as of 2.18. NCCL reads `size` bytes of it and takes defaults for
// the fields that were added since.
struct Config {
  std::size_t size = sizeof(Config);
  unsigned magic = 0xcafebeef;
  unsigned version = 21800;
  int blocking = INT_MIN;  // INT_MIN: NCCL's default
  int cga_cluster_size = INT_MIN;
  int least_blocks = INT_MIN;
  int most_blocks = INT_MIN;
  const char* network = nullptr;
  int split_shares = INT_MIN;
};

struct Api {
  Result (*get_version)(int*) = nullptr;
  Result (*get_unique_id)(Id*) = nullptr;
  Result (*init)(Handle*, int n_ranks, Id, int rank, Config*) = nullptr;
  Result (*split)(Handle, int color, int key, Handle*, Config*) = nullptr;
  Result (*count)(Handle, int*) = nullptr;
  Result (*user_rank)(Handle, int*) = nullptr;
  Result (*finalize)(Handle) = nullptr;
  Result (*destroy)(Handle) = nullptr;
  Result (*abort)(Handle) = nullptr;
  Result (*async_error)(Handle, Result*) = nullptr;
  const char* (*error_string)(Result) = nullptr;
  const char* (*last_error)(Handle) = nullptr;
  Result (*group_start)() = nullptr;
  Result (*group_end)() = nullptr;
  Result (*all_reduce)(
      const void*,
      void*,
      std::size_t,
      DataType,
      Reduction,
      Handle,
      cudaStream_t) = nullptr;
  Result (*reduce)(
      const void*,
      void*,
      std::size_t,
      DataType,
      Reduction,
      int root,
      Handle,
      cudaStream_t) = nullptr;
  Result (*broadcast)(
      const void*,
      void*,
      std::size_t,
      DataType,
      int root,
      Handle,
      cudaStream_t) = nullptr;
  Result (*all_gather)(
      const void*, void*, std::size_t, DataType, Handle, cudaStream_t) =
      nullptr;
  Result (*reduce_scatter)(
      const void*,
      void*,
      std::size_t,
      DataType,
      Reduction,
      Handle,
      cudaStream_t) = nullptr;
  Result (*send)(
      const void*, std::size_t, DataType, int peer, Handle, cudaStream_t) =
      nullptr;
  Result (*recv)(void*, std::size_t, DataType, int peer, Handle, cudaStream_t) =
      nullptr;
};

// Null: NCCL is missing, lacks a function, or is of a version that the driver
// does not know. why() says so in one sentence.
const Api* api();
const std::string& why();

}  // namespace npu::cuda::nccl
