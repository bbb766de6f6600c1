// SPDX-License-Identifier: Apache-2.0
// The part of CUPTI that the driver uses, opened at run time. Names, numbers
// and layouts are those of cupti.h: records only grow at their end, so that the
// beginning of one fits every version.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace npu::cuda::cupti {

// CUptiResult
using Result = int;
inline constexpr Result kSuccess = 0;
inline constexpr Result kMultipleSubscribers = 39;

// CUpti_ActivityKind
using Kind = int;
inline constexpr Kind kCopyRecord = 1;
inline constexpr Kind kSetRecord = 2;
inline constexpr Kind kDriverCall = 4;
inline constexpr Kind kRuntimeCall = 5;
inline constexpr Kind kKernelRecord = 10;
inline constexpr Kind kPeerCopyRecord = 22;
inline constexpr Kind kCorrelationRecord = 39;

// CUpti_ExternalCorrelationKind: Kineto takes custom 0 and 1.
inline constexpr int kCustom2 = 5;

struct alignas(8) KernelRecord {  // CUpti_ActivityKernel10
  Kind kind;
  std::uint8_t ignored[12];
  std::uint64_t begin;
  std::uint64_t end;
  std::uint64_t completed;
  std::uint32_t device;
  std::uint32_t context;
  std::uint32_t stream;
  std::uint8_t shape[36];
  std::uint32_t local_memory;
  std::uint32_t correlation;
  std::int64_t grid;
  const char* name;
};
struct alignas(8) CopyRecord {  // CUpti_ActivityMemcpy6
  Kind kind;
  std::uint8_t sort;
  std::uint8_t from;
  std::uint8_t to;
  std::uint8_t flags;
  std::uint64_t bytes;
  std::uint64_t begin;
  std::uint64_t end;
  std::uint32_t device;
  std::uint32_t context;
  std::uint32_t stream;
  std::uint32_t correlation;
};
struct alignas(8) PeerCopyRecord {  // CUpti_ActivityMemcpyPtoP4
  Kind kind;
  std::uint8_t sorts[4];
  std::uint64_t bytes;
  std::uint64_t begin;
  std::uint64_t end;
  std::uint32_t device;
  std::uint32_t context;
  std::uint32_t stream;
  std::uint32_t peers[4];
  std::uint32_t correlation;
};
struct alignas(8) SetRecord {  // CUpti_ActivityMemset4
  Kind kind;
  std::uint32_t value;
  std::uint64_t bytes;
  std::uint64_t begin;
  std::uint64_t end;
  std::uint32_t device;
  std::uint32_t context;
  std::uint32_t stream;
  std::uint32_t correlation;
};
struct alignas(8) CorrelationRecord {  // CUpti_ActivityExternalCorrelation
  Kind kind;
  int external_kind;
  std::uint64_t external;
  std::uint32_t correlation;
};

using Subscriber = void*;
using RequestFn = void (*)(std::uint8_t**, std::size_t*, std::size_t*);
using CompleteFn = void (*)(
    void* context,
    std::uint32_t stream,
    std::uint8_t* buffer,
    std::size_t size,
    std::size_t valid);
using CallbackFn = void (*)(void*, int domain, std::uint32_t id, const void*);

struct Api {
  Result (*get_version)(std::uint32_t*) = nullptr;
  Result (*result_string)(Result, const char**) = nullptr;
  Result (*timestamp)(std::uint64_t*) = nullptr;
  Result (*subscribe)(Subscriber*, CallbackFn, void*) = nullptr;
  Result (*unsubscribe)(Subscriber) = nullptr;
  Result (*register_callbacks)(RequestFn, CompleteFn) = nullptr;
  Result (*enable)(Kind) = nullptr;
  Result (*disable)(Kind) = nullptr;
  Result (*flush_all)(std::uint32_t flag) = nullptr;
  Result (*next_record)(std::uint8_t*, std::size_t, void** record) = nullptr;
  Result (*dropped)(void* context, std::uint32_t, std::size_t*) = nullptr;
  Result (*push)(int kind, std::uint64_t id) = nullptr;
  Result (*pop)(int kind, std::uint64_t* last) = nullptr;
  Result (*stream_id)(
      void* context,
      cudaStream_t,
      std::uint8_t per_thread,
      std::uint32_t*) = nullptr;
};

// Null: CUPTI is missing, lacks a function, or is of a version that the driver
// does not know. why() says so in one sentence.
const Api* api();
const std::string& why();

}  // namespace npu::cuda::cupti
