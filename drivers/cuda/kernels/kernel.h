// SPDX-License-Identifier: Apache-2.0
// What a kernel family needs: its rows, launches, a note for errors.
//
// A family is one file, kernels/<family>.cu (or .cpp where nvcc is not needed),
// that ends in a table of rows, and one line in op.cpp that names the table.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <span>
#include <vector>

#include "cuda.h"
#include "npu/kinds.h"
#include "npu/op.h"
#include "npu/validate.h"
#include "shared/dtype_sets.h"

namespace npu::cuda {

// One kind. With NPU_PLAN_NONE in its caps, `plan` is null and the dtype masks
// of caps are what it takes.
struct KernelRow {
  std::uint32_t slot;
  // Fills `out` (its size is set, the rest is zero) for one code.
  npu_status (*caps)(std::uint32_t code, npu_op_caps& out);
  npu_status (*plan)(
      npu_device device, const npu_call& call, npu_verdict& verdict);
  npu_status (*run)(Stream& stream, const npu_call& call);
};

using Rows = std::span<const KernelRow>;
extern const Rows kCopyKernels;
extern const Rows kMapKernels;
extern const Rows kRandomKernels;
extern const Rows kMakeKernels;
extern const Rows kReduceKernels;
extern const Rows kNormaliseKernels;
extern const Rows kIndexKernels;
extern const Rows kSortedKernels;
extern const Rows kListKernels;
extern const Rows kGemmKernels;
extern const Rows kProgramKernels;

// A kernel's stack is taken from the GPU's memory when the first one needs so
// much: now, by a kernel that needs at least as many bytes (make.cu).
npu_status reserve_local_memory(std::size_t bytes) noexcept;

void release_gemm_plan(void* plan) noexcept;

// Where PyTorch has CUDA kernels too: asks only for calls whose own kernel was
// measured to be as fast (fast.cpp). NPU_CUDA_KERNELS=all: for all.
void limit_to_fast(std::uint32_t slot, npu_op_caps& out) noexcept;

// ---- launches ----

// Every kernel that can be launched, so that `open` can load them all.
inline std::vector<const void*>& all_kernels() {
  static auto* const all = new std::vector<const void*>;
  return *all;
}
struct KernelEntry {
  explicit KernelEntry(const void* kernel) {
    all_kernels().push_back(kernel);
  }
};
template <auto* kKernel>
inline const KernelEntry kEntryOf{reinterpret_cast<const void*>(kKernel)};

npu_status launch_any(
    Stream& stream,
    const void* kernel,
    std::uint64_t blocks,
    std::uint32_t threads,
    void** arguments,
    std::size_t shared_bytes) noexcept;

namespace launch_detail {
template <auto* kKernel, class... P>
npu_status launch(
    void (*)(P...),
    Stream& stream,
    std::uint64_t blocks,
    std::uint32_t threads,
    std::size_t shared_bytes,
    P... arguments) {
  static_cast<void>(&kEntryOf<kKernel>);
  void* pointers[] = {&arguments...};
  return launch_any(
      stream,
      reinterpret_cast<const void*>(kKernel),
      blocks,
      threads,
      pointers,
      shared_bytes);
}
}  // namespace launch_detail

// kKernel over a grid of one dimension.
template <auto* kKernel, class... Arguments>
npu_status launch(
    Stream& stream,
    std::uint64_t blocks,
    std::uint32_t threads,
    Arguments... arguments) {
  return launch_detail::launch<kKernel>(
      kKernel, stream, blocks, threads, 0, arguments...);
}
template <auto* kKernel, class... Arguments>
npu_status launch_shared(
    Stream& stream,
    std::uint64_t blocks,
    std::uint32_t threads,
    std::size_t shared_bytes,
    Arguments... arguments) {
  return launch_detail::launch<kKernel>(
      kKernel, stream, blocks, threads, shared_bytes, arguments...);
}

inline constexpr std::uint32_t kThreads = 256;
// Blocks for n elements, one per thread, as many as fill the GPU a few times.
inline std::uint64_t blocks_for(
    const Stream& stream, std::int64_t n, std::uint32_t threads = kThreads) {
  const auto wanted = (static_cast<std::uint64_t>(n) + threads - 1) / threads;
  const auto processors = static_cast<std::uint64_t>(
      device_at(stream.device).properties.multiProcessorCount);
  const auto most = processors * 16;
  return wanted < most ? wanted : most;
}

// ---- notes ----

// Whose call a kernel runs for, and where it says what is wrong.
struct Note {
  npu_mailbox* mailbox;
  std::uint64_t correlation;
  std::uint32_t slot;
  std::uint32_t operand;  // place in call.tensors
  char label[64];
};
Note note_for(
    const Stream& stream,
    const npu_call& call,
    std::uint32_t operand,
    const char* label = nullptr) noexcept;

// ---- caps ----

inline void usual_caps(npu_op_caps& out, std::uint32_t rule) noexcept {
  out.flags = NPU_CAP_INDEX64 | NPU_CAP_DETERMINISTIC | NPU_CAP_CAPTURE;
  out.dtype_rule = rule;
  out.plan_use = NPU_PLAN_NONE;
}

npu_status refuse(const npu_call& call, const char* why) noexcept;

// ---- dtypes ----

inline std::int64_t element_bytes_of(npu_dtype dtype) noexcept {
  return npu_dtype_bytes(dtype);
}
inline constexpr std::uint64_t kEveryBit =
    ((UINT64_C(1) << NPU_DTYPE_COUNT) - 1) & ~UINT64_C(1);
inline constexpr std::uint64_t kNumberBits =
    kBoolBit | kAnyIntBits | kFloatBits;

// A number as one element of `dtype` (at most 16 bytes), as copy converts it.
// False: there is no such dtype. (scalar.cpp)
bool convert_scalar(
    npu_dtype dtype, const npu_scalar& scalar, void* out) noexcept;

}  // namespace npu::cuda
