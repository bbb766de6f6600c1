// SPDX-License-Identifier: Apache-2.0
// What a kernel family needs: its rows, threads, errors.
//
// A family is one file (kernels/<family>.cpp) that ends in a table of rows, and
// one line in kernels.cpp that names the table. Kernels compute on the calling
// thread (the caller's, or a stream's worker) and know nothing of streams,
// queues or page protection.
#pragma once

#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>

#include "npu/kinds.h"
#include "npu/op.h"

namespace npu::host {

// One kind. With NPU_PLAN_NONE in its caps, `plan` is null and the dtype masks
// of caps are what it takes.
struct KernelRow {
  std::uint32_t slot;
  // Fills `out` (its size is set, the rest is zero) for one code.
  // NPU_E_UNSUPPORTED when there is no such code.
  npu_status (*caps)(std::uint32_t code, npu_op_caps& out);
  npu_status (*plan)(const npu_call& call, npu_verdict& verdict);
  npu_status (*run)(const npu_call& call);
};

// The families' tables. std::span, so that a table knows its length.
extern const std::span<const KernelRow> kArrangeKernels;
extern const std::span<const KernelRow> kAttentionKernels;
extern const std::span<const KernelRow> kColumnsKernels;
extern const std::span<const KernelRow> kConvKernels;
extern const std::span<const KernelRow> kEmbedKernels;
extern const std::span<const KernelRow> kFusedKernels;
extern const std::span<const KernelRow> kGemmKernels;
extern const std::span<const KernelRow> kGridSampleKernels;
extern const std::span<const KernelRow> kIndexKernels;
extern const std::span<const KernelRow> kIndexWriteKernels;
extern const std::span<const KernelRow> kListKernels;
extern const std::span<const KernelRow> kLossKernels;
extern const std::span<const KernelRow> kMakeKernels;
extern const std::span<const KernelRow> kMapKernels;
extern const std::span<const KernelRow> kMoveKernels;
extern const std::span<const KernelRow> kNormaliseKernels;
extern const std::span<const KernelRow> kOrderKernels;
extern const std::span<const KernelRow> kOrderCountKernels;
extern const std::span<const KernelRow> kPoolKernels;
extern const std::span<const KernelRow> kProgramKernels;
extern const std::span<const KernelRow> kRandomKernels;
extern const std::span<const KernelRow> kRecurrentKernels;
extern const std::span<const KernelRow> kReduceKernels;
extern const std::span<const KernelRow> kResizeKernels;
extern const std::span<const KernelRow> kScanKernels;
extern const std::span<const KernelRow> kSelectKernels;

// The row of a slot, or null.
const KernelRow* find_kernel(std::uint32_t slot) noexcept;
// NPU_HOST_KERNELS=fast: writes what fast.txt says about a kernel; false when
// it is not to be used.
bool limit_to_fast(
    std::uint32_t slot, std::uint32_t code, npu_op_caps& out) noexcept;

// Store the error text (printf) and hand back `status`, to be returned.
__attribute__((format(printf, 2, 3))) npu_status fail(
    npu_status status, const char* format, ...) noexcept;

// Instruction sets, each containing the one before it. NPU_HOST_ISA.
enum class Isa { kBaseline, kAvx2, kAvx512 };
Isa isa() noexcept;
// A table that is compiled once per set, in the namespaces isa_*: the one in
// use. Other machines have the baseline alone.
template <class Table>
const Table& table_in_use(
    const Table& baseline, const Table& avx2, const Table& avx512) noexcept {
  switch (isa()) {
    case Isa::kAvx512:
      return avx512;
    case Isa::kAvx2:
      return avx2;
    case Isa::kBaseline:
      break;
  }
  return baseline;
}
#if defined(__x86_64__)
#define NPU_TABLE_IN_USE(table) \
  table_in_use(isa_baseline::table, isa_avx2::table, isa_avx512::table)
#else
#define NPU_TABLE_IN_USE(table) (isa_baseline::table)
#endif

// services->parallel_for; serial on a stream's worker thread.
npu_status parallel_ranges(
    std::int64_t n, std::int64_t grain, npu_range_fn fn, void* context);

// Elements a thread should have before a second one pays off.
inline constexpr std::int64_t kGrain = 32768;

// body(begin, end) over [0, n) in pieces of at least `grain`; pieces begin at
// any index, so results may not depend on where they are cut. body returns
// void or a status; the first error ends it.
template <class Body>
npu_status parallel(std::int64_t n, std::int64_t grain, Body&& body) {
  using Fn = std::remove_reference_t<Body>;
  const auto piece =
      [](void* context, std::int64_t begin, std::int64_t end) -> npu_status {
    Fn& fn = *static_cast<Fn*>(context);
    if constexpr (std::is_void_v<decltype(fn(begin, end))>) {
      fn(begin, end);
      return NPU_OK;
    } else {
      return fn(begin, end);
    }
  };
  if (n <= grain) {
    return n > 0 ? piece(const_cast<std::remove_const_t<Fn>*>(&body), 0, n)
                 : NPU_OK;
  }
  return parallel_ranges(
      n, grain, piece, const_cast<std::remove_const_t<Fn>*>(&body));
}

}  // namespace npu::host
